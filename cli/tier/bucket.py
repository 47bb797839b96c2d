"""The object store as `trioka tier` uses it: a listing with times, and deletion."""

from collections.abc import Iterator
from contextlib import suppress

from trioka.archive.errors import MissingObject
from trioka.archive.store import ReadOnlyStore, named
from trioka.cluster.remote_log.jobs import ManifestKey
from trioka.cluster.remote_log.sweep import ListedObject
from trioka.protocol.errors import ProtocolError
from trioka.protocol.remote_segment.manifest import MAX_MANIFEST_BYTES, Tombstone, decode_manifest
from trioka.protocol.remote_segment.object_key import ObjectSuffix, RemoteSegment, parse_key


class Bucket(ReadOnlyStore):
    def listed(self) -> Iterator[ListedObject]:
        """The objects of segments; other objects are left out."""
        with named(self, ""):
            for chunk in self._obstore.list(self._store):
                for found in chunk:
                    try:
                        segment, suffix = parse_key(found["path"])
                    except ProtocolError:
                        continue
                    yield ListedObject(
                        segment=segment,
                        suffix=suffix,
                        size=found["size"],
                        last_modified_ms=int(found["last_modified"].timestamp() * 1000),
                    )

    def manifest_key(self, segment: RemoteSegment) -> ManifestKey:
        """What is neither a manifest nor a tombstone counts as a manifest: it is kept with its data."""
        try:
            found = decode_manifest(self.read(segment.key(ObjectSuffix.MANIFEST), limit=MAX_MANIFEST_BYTES))
        except MissingObject:
            return ManifestKey.NOTHING
        except ProtocolError:
            return ManifestKey.MANIFEST
        return ManifestKey.TOMBSTONE if isinstance(found, Tombstone) else ManifestKey.MANIFEST

    def delete(self, key: str) -> None:
        with named(self, key), suppress(FileNotFoundError):  # a broker was faster
            self._obstore.delete(self._store, key)

    def create(self, key: str, data: bytes) -> bool:
        """Writes an object unless the key exists."""
        with named(self, key):
            try:
                self._obstore.put(self._store, key, data, mode="create")
            except self._obstore.exceptions.AlreadyExistsError:
                return False
        return True

    def put(self, key: str, data: bytes) -> None:
        """Writes an object, or replaces it."""
        with named(self, key):
            self._obstore.put(self._store, key, data)
