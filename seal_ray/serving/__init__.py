"""Serving: a trained model behind an OpenAI-compatible interface, on Ray Serve's `ray.serve.llm`.

`app.py` builds the Serve application from its settings. A request passes `front.py` (the ingress), `admission.py`,
`request_models.py` and `limits.py` (fields and their bounds), and `queues.py`. `server.py` is the replica with vLLM,
`prompt.py` turns a chat into the tokens that training and evaluation use.
"""
