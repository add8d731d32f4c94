"""The VLLMUpgrade API: models, schema, CRD."""
