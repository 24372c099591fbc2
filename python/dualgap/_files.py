"""Files that are replaced as a whole: a reader finds the old content or the new, never a part."""

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
    """Find out before a long fit whether `replacing` could write here.

    Missing folders are made. An existing file is left as it is.

    Raises
    ------
    OSError
        If it could not.
    """
    target = _target(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "Is a directory", str(target))
    if _is_special(target):
        # Opening a pipe would wait for its reader, and closing it would end what the reader reads.
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
    """Open a draft beside `path` that takes its place when the block ends without an exception.

    The draft is written to the disk (fsync) before it is renamed, and so is the folder's entry. A
    symbolic link stays one: what it points to is replaced. The new file has the old one's
    permissions. A pipe or a device is written directly.

    Raises
    ------
    OSError
        If the file cannot be written; the old one is then as it was, and no draft is left.
    """
    target = _target(path)
    if _is_special(target):
        with _errors_named(target), open(target, "wb") as device:
            yield device
        return
    draft = _draft(target)
    with _errors_named(target), ExitStack() as clean_up:
        # The last in is the first out: the draft is closed, then removed unless it was renamed.
        clean_up.callback(_remove, draft)
        file = clean_up.enter_context(_open_draft(draft, target))
        if hasattr(os, "fchmod") and target.exists():
            os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
        yield file
        file.flush()
        os.fsync(file.fileno())
        _name(file, draft)
        # Windows renames no open file.
        file.close()
        os.replace(draft, target)
    _sync_folder(target.parent)


@contextmanager
def _errors_named(target: Path) -> Iterator[None]:
    """Name the file in errors of writes, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(target)) from error
        raise


def _target(path: str | os.PathLike[str]) -> Path:
    return Path(os.path.realpath(path))


def _is_special(target: Path) -> bool:
    return target.exists() and not (target.is_file() or target.is_dir())


def _draft(target: Path) -> Path:
    # Names have at most 255 bytes.
    return target.with_name(f".{target.name[:40]}.{secrets.token_hex(8)}.draft")


def _open_draft(draft: Path, target: Path) -> IO[bytes]:
    # On Linux the draft has no name until it is complete: a process that is killed leaves nothing.
    if hasattr(os, "O_TMPFILE") and Path("/proc/self/fd").exists():
        # Some file systems have no such files.
        with suppress(OSError):
            return os.fdopen(os.open(draft.parent, os.O_TMPFILE | os.O_RDWR, 0o666), "w+b")
    try:
        return open(draft, "xb")
    except OSError as error:
        # The user knows nothing of drafts.
        raise OSError(error.errno, error.strerror, str(target)) from None


def _name(file: IO[bytes], draft: Path) -> None:
    """Give a draft without a name its name."""
    if draft.exists():
        return
    folder = os.open(draft.parent, os.O_RDONLY)
    try:
        # With a folder's descriptor Python calls linkat, which follows the link in /proc.
        source = f"/proc/self/fd/{file.fileno()}"
        os.link(source, draft.name, dst_dir_fd=folder, follow_symlinks=True)
    finally:
        os.close(folder)


def _remove(draft: Path) -> None:
    with suppress(FileNotFoundError):
        draft.unlink()


def _sync_folder(folder: Path) -> None:
    """Make a renaming last through a crash of the machine, where the system can (not Windows)."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
