"""Serving: a trained model behind an OpenAI-compatible interface, on Ray Serve's `ray.serve.llm`.

`settings.py` has the settings, `app.py` makes the Serve application of it, `prompt.py` turns a request into the
very tokens that training and evaluation use, `server.py` is the replica with vLLM in it, `front.py` what clients talk
to, and `local.py` starts all of it from the command line.
"""
