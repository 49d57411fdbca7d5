"""Settings of signed agent cards: the gateway's own keys, and the keys by which it verifies upstream cards."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, model_validator
from pydantic_settings import NoDecode

from babelgate.gateway.settings.credentials import is_trusted_url
from babelgate.gateway.settings.fields import SettingsSection, parse_list


def _path_of_key(value: object) -> object:
    if isinstance(value, str) and "-----BEGIN" in value:
        raise ValueError("the path of a file is expected, and not the key itself")
    return value


class SigningSettings(SettingsSection):
    """Signing of the agent cards that the gateway serves (A2A 1.0)."""

    keys: Annotated[
        tuple[Annotated[Path, BeforeValidator(_path_of_key)], ...], NoDecode, BeforeValidator(parse_list)
    ] = ()
    """PEM files with private keys: P-256, Ed25519, or RSA of 2048 bits or more. Each key signs every card, the first
    key first. Needs `public_url`. A reload reads the files again."""


def _source_of_keys(value: str) -> str:
    if "-----BEGIN" in value or value.lstrip().startswith("{"):
        raise ValueError("the path of a file or a URL is expected, and not the key itself")
    if not value:
        raise ValueError("the path of a file or a URL is expected")
    if "://" in value and not is_trusted_url(value):
        raise ValueError("an https:// URL, an http:// URL of this machine, or a file")
    return value


def _read_off(value: object) -> object:
    return "off" if value is False else value  # what YAML 1.1 reads in `verify: off`


class CardSettings(SettingsSection):
    """Verification of the agent card that an agent's server serves (A2A 1.0)."""

    verify: Annotated[Literal["off", "audit", "require"], BeforeValidator(_read_off)] = "off"
    """Treatment of a card that none of `keys` has signed: `off` does not check, `audit` uses it, with a warning in the
    log and a record in the audit log, `require` refuses the agent."""
    keys: tuple[Annotated[str, AfterValidator(_source_of_keys)], ...] = ()
    """Public keys of the operator of the server: files with a key set (JWKS) or with a public key in PEM, and URLs of
    key sets. A URL with a non-public address must be in `network.allow`. URLs in the card itself are never used."""

    @property
    def is_checked(self) -> bool:
        """True if the gateway verifies the card."""
        return self.verify != "off"

    @model_validator(mode="after")
    def _has_keys(self) -> "CardSettings":
        if self.is_checked and not self.keys:
            raise ValueError(f"verify: {self.verify} needs keys: files or URLs with the public keys of the operator")
        return self
