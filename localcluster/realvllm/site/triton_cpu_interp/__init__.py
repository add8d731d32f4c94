"""A marker `cpu` backend for Triton.

No wheel has one. With it vLLM finds Triton usable, and `TRITON_INTERPRET=1` runs the kernels in
numpy: the real code of Model Runner V2, slowly.
"""
