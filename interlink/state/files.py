"""Durable file operations: private modes, atomic replacement, synced appends (T2, M29).

Every function here leaves either the old or the new content, whatever moment the process ends at.
Light on purpose: the listener imports this file.
"""

import os
import stat

from interlink.errors import StateError

DIR_MODE = 0o700
FILE_MODE = 0o600


def explain(exc: OSError, doing: str) -> StateError:
    """A StateError that names the operation, the path and the system's reason."""
    reason = os.strerror(exc.errno) if exc.errno else str(exc)
    name = exc.filename if isinstance(exc.filename, str) else ""
    return StateError(f"cannot {doing}{f' {name}' if name and name not in doing else ''}: {reason}")


def ensure_root(root: str) -> str:
    """Make or check the state root: ours, a real directory, 0700. Returns it.

    Raises StateError for a relative root, one of another user, or something that is no directory (M29).
    """
    if not os.path.isabs(root):
        raise StateError(f"the state root {root!r} is relative: set XDG_STATE_HOME to an absolute path")
    try:
        make_dirs(root)
        info = os.stat(root)
        if not stat.S_ISDIR(info.st_mode):
            raise StateError(f"the state root {root} is not a directory: move it away")
        if hasattr(os, "getuid") and info.st_uid != os.getuid():
            raise StateError(
                f"the state root {root} belongs to user {info.st_uid}, not to us ({os.getuid()}): "
                "set XDG_STATE_HOME to a directory of your own"
            )
        tighten(root)
    except FileExistsError as exc:
        raise StateError(f"{exc.filename or root} is not a directory: move it away") from exc
    except OSError as exc:
        raise explain(exc, f"use the state root {root}") from exc
    return root


def ensure_dir(path: str, root: str) -> str:
    """Make a directory below `root`, 0700, synced into its parent; refuse one that a link leads out of root."""
    try:
        if not os.path.isdir(path):
            parent = os.path.dirname(path)
            if parent != root and len(parent) > len(root):
                ensure_dir(parent, root)
            try:
                os.mkdir(path, DIR_MODE)
                sync_dir(parent)
            except FileExistsError:
                pass
        real_root = os.path.realpath(root)
        real = os.path.realpath(path)
        if real != real_root and not real.startswith(real_root + os.sep):
            raise StateError(f"{path} leads out of the state root by a symbolic link: remove the link")
        if not os.path.isdir(path):
            raise StateError(f"{path} is not a directory: move it away")
        tighten(path)
    except OSError as exc:
        raise explain(exc, f"make the directory {path}") from exc
    return path


def make_dirs(path: str) -> None:
    """Make a directory and its missing parents, each 0700 and durable. Existing ones stay as they are.

    Raises OSError (the caller says what it was for).
    """
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    if parent != path:
        make_dirs(parent)
    try:
        os.mkdir(path, DIR_MODE)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
    else:
        sync_dir(parent)


def tighten(path: str) -> bool:
    """Take away group and other modes, where there are any. True when something was changed (M29)."""
    if os.name == "nt":
        return False
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if mode & 0o077:
        os.chmod(path, mode & 0o700)
        return True
    return False


def tighten_tree(root: str) -> int:
    """Tighten every wider mode below the root; returns how many were changed (M29). Links are left alone."""
    changed = 0
    for folder, _dirs, names in os.walk(root):
        for path in (folder, *(os.path.join(folder, n) for n in names)):
            try:
                if not os.path.islink(path):
                    changed += tighten(path)
            except FileNotFoundError:
                continue  # removed by another process at this moment
            except OSError as exc:
                raise explain(exc, f"tighten the mode of {path}") from exc
    return changed


def sync_dir(path: str) -> None:
    """Make a rename or creation in this directory durable. A no-op where directories cannot be synced."""
    if os.name == "nt":
        return
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write every byte; os.write may take fewer."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def atomic_write(path: str, data: bytes, *, durable: bool = True, mode: int = FILE_MODE) -> tuple[int, int, int]:
    """Replace a file by a temporary one in the same directory (T2). Two syncs when `durable`.

    Returns the `signature` of what was written, whatever lies at the path by now. Raises StateError; the old
    content is then still there and the temporary file is gone.
    """
    folder, name = os.path.split(path)
    temp = os.path.join(folder, f".{name}.{os.getpid()}.tmp")
    try:
        fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0), mode)
        try:
            try:
                write_all(fd, data)
                if durable:
                    os.fsync(fd)
                written = _signature(os.fstat(fd))
            finally:
                os.close(fd)
            os.replace(temp, path)
        except OSError:
            _remove_quietly(temp)
            raise
        if durable:
            sync_dir(folder)
    except OSError as exc:
        raise explain(exc, f"write {path}") from exc
    return written


def remove(path: str) -> None:
    """Remove a file; one that is gone already is as it should be. StateError where it cannot be removed."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except OSError as exc:
        raise explain(exc, f"remove {path}") from exc


def _remove_quietly(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return  # the write has already failed; its error is the one to report


def read_bytes(path: str, *, limit: int | None = None) -> bytes | None:
    """The file's content, None where there is none. StateError for a directory or an unreadable file."""
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise explain(exc, f"read {path}") from exc
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise StateError(f"{path} is not a regular file: move it away")
        if limit is not None and info.st_size > limit:
            raise StateError(f"{path} has {info.st_size} bytes, more than the {limit} that it may have")
        parts = []
        while chunk := os.read(fd, 1 << 20):
            parts.append(chunk)
        return b"".join(parts)
    except OSError as exc:
        raise explain(exc, f"read {path}") from exc
    finally:
        os.close(fd)


def signature(path: str) -> tuple[int, int, int] | None:
    """(inode, size, mtime ns): changes whenever the file is replaced or appended to. None = no file."""
    try:
        info = os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise explain(exc, f"look at {path}") from exc
    return _signature(info)


def _signature(info: os.stat_result) -> tuple[int, int, int]:
    return (info.st_ino, info.st_size, info.st_mtime_ns)


def remove_stale_temps(folder: str) -> int:
    """Remove temporary files whose process is gone (a crash between write and rename). Returns how many."""
    count = 0
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return 0
    except OSError as exc:
        raise explain(exc, f"list {folder}") from exc
    for name in names:
        if is_stale_temp(name):
            _remove_quietly(os.path.join(folder, name))
            count += 1
    return count


def is_stale_temp(name: str) -> bool:
    """True for the name of a temporary file of ours whose process is gone."""
    if not (name.startswith(".") and name.endswith(".tmp")):
        return False
    pid_text = name[:-4].rpartition(".")[2]
    return pid_text.isdigit() and not _alive(int(pid_text))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
