"""Serving: a trained model behind an OpenAI-compatible interface, on Ray Serve's `ray.serve.llm`.

`app.py` has the settings and makes the Serve application of them, `prompt.py` turns a request into the very tokens that
training and evaluation use, `server.py` is the replica with vLLM in it, and `front.py` what clients talk to. Requests
come in through `admission.py` and wait in `queues.py`; `fields.py` has what they may ask for, `limits.py` how much.
"""
