"""Serving: a trained model behind an OpenAI-compatible interface, on Ray Serve's `ray.serve.llm`.

`settings.py` has the settings, `app.py` makes the Serve application of it, `prompt.py` turns a request into the
very tokens that training and evaluation use, `server.py` is the replica with vLLM in it, and `front.py` what clients
talk to. Requests come in through `admission.py` and `intake.py`, and wait in `queues.py`; `fields.py` has what they may
ask for, of the kinds of `checks.py`, and `limits.py` how much.
"""
