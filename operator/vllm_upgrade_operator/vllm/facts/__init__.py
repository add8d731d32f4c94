"""Facts about vLLM's versions, as data: what each knows, chooses and cannot do.

For a new release: make `known.json` anew (`python -m localcluster.realvllm.facts`), add its row to
`releases.py`, and mend the spans of versions in `features.py` and `choice.py`.
"""
