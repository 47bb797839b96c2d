"""Checks the URL of an object store: trioka.tier.url."""

from typing import Final
from urllib.parse import urlsplit

SCHEMES: Final = ("s3", "gs", "az", "file")


def tier_url_problem(url: str) -> str | None:
    """What is wrong with the URL, as the rest of a sentence that begins with "it"; None if nothing is.

    A login in the URL would appear in log lines, so it is refused.
    """
    try:
        parts = urlsplit(url)
        has_login = parts.username is not None or parts.password is not None
    except ValueError:
        return "is not a URL"
    if parts.scheme not in SCHEMES:
        return f"must begin with one of {', '.join(f'{scheme}://' for scheme in SCHEMES)}"
    if has_login:
        return "must not contain credentials"
    if parts.query or parts.fragment:
        return "must not have a query or a fragment"
    if parts.scheme == "file" and (parts.netloc or not parts.path.strip("/")):
        return "must name an absolute directory, as in file:///var/lib/tier"
    if parts.scheme != "file" and not parts.netloc:
        return "must name a bucket"
    return None
