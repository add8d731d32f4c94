"""What cannot be done with a pod template, said so that a person can mend it."""

from __future__ import annotations


class TemplateError(ValueError):
    """A pod template, or what is to be changed in it, is not of a form that can be edited.

    Attributes:
        field: The field at fault, such as `spec.candidate.unsetArgs` or `containers[vllm].args`.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
