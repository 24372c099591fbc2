"""Atomic replacement of files: readers see either the old or the new content, never a part."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO


def check_writable(path: str | os.PathLike[str]) -> None:
    """Check before a long fit that `replacing` can write to a path.

    Creates missing folders. An existing file stays unchanged.

    Raises
    ------
    OSError
        If the path is not writable.
    """
    target = _target(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "Is a directory", str(target))
    if _is_special(target):
        # Opening a pipe would wait for its reader, and closing it would end the reader's input.
        if not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, "Permission denied", str(target))
        return
    draft = _draft(target)
    try:
        _open_draft(draft, target).close()
    finally:
        _remove(draft)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a draft next to `path`; it replaces `path` if the block ends without an exception.

    The draft is flushed to the disk (fsync) before it is renamed; the folder is flushed afterwards.
    Symbolic links are kept; their target is replaced. The new file has the permissions of the old
    file. Pipes and devices are written to directly, without a draft.

    Raises
    ------
    OSError
        If the file cannot be written. The old file is then unchanged, and no draft remains.
    """
    target = _target(path)
    if _is_special(target):
        with _errors_named(target), open(target, "wb") as device:
            yield device
        return
    draft = _draft(target)
    with _errors_named(target), ExitStack() as clean_up:
        # Callbacks run in reverse order: close the draft, then remove it unless it was renamed.
        clean_up.callback(_remove, draft)
        file = clean_up.enter_context(_open_draft(draft, target))
        if hasattr(os, "fchmod") and target.exists():
            os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
        yield file
        file.flush()
        os.fsync(file.fileno())
        _name(file, draft)
        # Windows cannot rename an open file.
        file.close()
        os.replace(draft, target)
    _sync_folder(target.parent)


@contextmanager
def _errors_named(target: Path) -> Iterator[None]:
    """Add the file's name to write errors, such as the error for a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(target)) from error
        raise


def _target(path: str | os.PathLike[str]) -> Path:
    # If standard output is a pipe, the link /dev/stdout leads to a name that does not exist.
    given = Path(path)
    return given if _is_special(given) else Path(os.path.realpath(given))


def _is_special(target: Path) -> bool:
    return target.exists() and not (target.is_file() or target.is_dir())


def _draft(target: Path) -> Path:
    # Names have at most 255 bytes.
    return target.with_name(f".{target.name[:40]}.{secrets.token_hex(8)}.draft")


def _open_draft(draft: Path, target: Path) -> IO[bytes]:
    # On Linux a draft has no name until it is complete, so a killed process leaves no file.
    if hasattr(os, "O_TMPFILE") and Path("/proc/self/fd").exists():
        # Some file systems do not support unnamed files.
        with suppress(OSError):
            return os.fdopen(os.open(draft.parent, os.O_TMPFILE | os.O_RDWR, 0o666), "w+b")
    try:
        return open(draft, "xb")
    except OSError as error:
        # The message names the user's file, not the draft.
        raise OSError(error.errno, error.strerror, str(target)) from None


def _name(file: IO[bytes], draft: Path) -> None:
    """Give an unnamed draft its name."""
    if draft.exists():
        return
    folder = os.open(draft.parent, os.O_RDONLY)
    try:
        # When Python gets a folder's descriptor, it calls linkat, which follows the link in /proc.
        source = f"/proc/self/fd/{file.fileno()}"
        os.link(source, draft.name, dst_dir_fd=folder, follow_symlinks=True)
    finally:
        os.close(folder)


def _remove(draft: Path) -> None:
    with suppress(FileNotFoundError):
        draft.unlink()


def _sync_folder(folder: Path) -> None:
    """Flush a rename to the disk, if the system supports it (not Windows)."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
