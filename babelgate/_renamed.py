"""Former import names: the packages of `babelgate` were top-level packages once."""

from typing import Final

FORMER: Final = frozenset({"canonical", "adapters", "gateway", "conformance"})


def hint_for(error: BaseException) -> str:
    """Return a sentence with the new name if `error`, or one of its causes, is the absence of a package with a former
    name; otherwise ""."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ModuleNotFoundError) and cause.name in FORMER:
            return _hint(cause.name)
        cause = cause.__cause__
    return ""


def describe_import_error(error: BaseException) -> str:
    """Return the type and text of an exception that an import raised, and the hint that belongs to it."""
    text, hint = f"{type(error).__name__}: {error}", hint_for(error)
    return text if hint in text else f"{text}. {hint}"


def refuse_former_name(module: str) -> None:
    """Raise ModuleNotFoundError if a package of `babelgate` is imported under its former name.

    In a checkout the folders are at the top, so Python finds them by their former names. A second copy of each module,
    whose classes are not those of the first, would be worse than an error.
    """
    if module in FORMER:
        raise ModuleNotFoundError(f"No module named {module!r}. {_hint(module)}", name=module)


def _hint(name: str) -> str:
    return (
        f"The package {name!r} is now 'babelgate.{name}'; agents import from 'babelgate', as in: "
        "from babelgate import Ask. "
        f"If you mean a package of your own, start in the folder that contains {name!r}."
    )
