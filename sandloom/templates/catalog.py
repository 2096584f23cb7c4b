"""Which templates there are: names that belong to a tenant, archives by their digests.

A tenant also sees what the operator published; a name of the operator's is nobody else's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from urllib.parse import quote

from sandloom.errors import TemplateInvalid, TemplateNameTaken, TemplateNotFound
from sandloom.ids import DEFAULT_TENANT
from sandloom.objects import ObjectMissing, ObjectStore
from sandloom.templates.records import Template
from sandloom.templates.references import DIGEST_PREFIX

_MAX_RECORD_BYTES = 1 << 20
_MAX_REVISIONS = 100


class Catalog:
    """``shared``: whether every worker of the deployment sees the same store."""

    def __init__(self, store: ObjectStore, *, shared: bool) -> None:
        self.shared = shared
        self._store = store

    def find(self, tenant_id: str, name: str) -> Template | None:
        """The tenant's own, else the operator's."""
        own = self._read(_key(tenant_id, name))
        return own or (self._read(_key(DEFAULT_TENANT, name)) if tenant_id != DEFAULT_TENANT else None)

    def list(self, tenant_id: str) -> list[Template]:
        found: dict[str, Template] = {}
        for owner in dict.fromkeys((DEFAULT_TENANT, tenant_id)):
            for info in self._store.list(_prefix(owner)):
                template = self._read(info.key)
                if template is not None:
                    found[template.name] = template
        return sorted(found.values(), key=lambda template: template.name)

    def publish(self, tenant_id: str, template: Template, chunks: Iterator[bytes]) -> Template:
        """The archive first, then the name. Raises TemplateNameTaken, ObjectStoreUnavailable, DigestMismatch."""
        if tenant_id != DEFAULT_TENANT and self._read(_key(DEFAULT_TENANT, template.name)) is not None:
            raise TemplateNameTaken
        key = _blob(template.digest)
        known = self._store.head(key)
        if known is None or known.size_bytes != template.size_bytes:
            self._store.put(key, chunks, sha256=template.digest.removeprefix(DIGEST_PREFIX))
        before = self._read(_key(tenant_id, template.name))
        earlier = dict(list(before.revisions.items())[-_MAX_REVISIONS:]) if before else {}
        stored = replace(template, revisions={**earlier, template.digest: template.size_bytes})
        self._store.put(_key(tenant_id, template.name), [stored.encode()])
        return stored

    def unpublish(self, tenant_id: str, name: str) -> Template:
        """The name goes, the archive stays. Raises TemplateNotFound unless the tenant itself has it."""
        template = self._read(_key(tenant_id, name))
        if template is None:
            raise TemplateNotFound(f"There is no template {name} of yours.")
        self._store.delete(_key(tenant_id, name))
        return template

    @contextmanager
    def archive(self, digest: str) -> Iterator[Iterator[bytes]]:
        """Raises TemplateNotFound when the archive is gone."""
        try:
            with self._store.get(_blob(digest)) as chunks:
                yield chunks
        except ObjectMissing:
            raise TemplateNotFound(f"The archive {digest} is not in the store.") from None

    def _read(self, key: str) -> Template | None:
        try:
            with self._store.get(key) as chunks:
                data = b""
                for chunk in chunks:
                    data += chunk
                    if len(data) > _MAX_RECORD_BYTES:
                        break
            return Template.decode(data)
        except ObjectMissing:
            return None
        except (ValueError, TypeError) as error:
            raise TemplateInvalid("A template's record in the store is damaged; publish it again.") from error


def _prefix(tenant_id: str) -> str:
    return f"templates/names/t-{quote(tenant_id, safe='')}/"


def _key(tenant_id: str, name: str) -> str:
    return f"{_prefix(tenant_id)}{name}.json"


def _blob(digest: str) -> str:
    return f"templates/archives/{digest.removeprefix(DIGEST_PREFIX)}.tar"
