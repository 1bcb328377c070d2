"""Memory for a key: not written to swap or to a core dump, zeros after a fork, and overwritten when it is let go.

Locking is asked of the kernel and may be refused (``ulimit -l``); then the rest holds all the same. See ``stream.md``
for the copies that this module cannot reach.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["LockedMemory"]

MADV_WIPEONFORK = 18
"""A forked process finds zeros (Linux 4.14, madvise(2); :mod:`mmap` has no name for it).

The pages must stay mapped there. The fork copies the Python object as well; if the pages were absent, the kernel would
give their address to something else, which the object would unmap when it is collected.
"""

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mlock.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_LIBC.getrandom.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint)
_LIBC.getrandom.restype = ctypes.c_ssize_t


class LockedMemory:
    """A few bytes on pages of their own.

    They are read through :meth:`view` alone, which refuses once the memory is wiped and in a forked process: nobody can
    take the zeros that are then there for a key.

    Parameters
    ----------
    content : bytes-like or int
        What to copy in; or how many bytes, which are then zero.

    Examples
    --------
    >>> memory = LockedMemory(b"secret")
    >>> with memory.view() as view:
    ...     bytes(view)
    b'secret'
    >>> memory.wipe()
    >>> with memory.view() as view:
    ...     bytes(view)
    Traceback (most recent call last):
    ValueError: this memory was wiped
    """

    __slots__ = ("__weakref__", "_finalizer", "_pages", "_process", "is_locked", "size")

    def __init__(self, content: bytes | memoryview | int) -> None:
        self.size = content if isinstance(content, int) else len(content)
        self._process = os.getpid()
        self._pages = mmap.mmap(-1, self.size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._pages.madvise(mmap.MADV_DONTDUMP)
        self._pages.madvise(MADV_WIPEONFORK)
        self.is_locked = _LIBC.mlock(_address(self._pages, self.size), self.size) == 0
        self._finalizer = weakref.finalize(self, _wipe, self._pages, self._process)
        if not isinstance(content, int):
            self._pages[:] = content

    @classmethod
    def random(cls, size: int) -> LockedMemory:
        """Return fresh bytes from the operating system's generator, which writes them here and nowhere else.

        Examples
        --------
        >>> LockedMemory.random(32).size
        32
        """
        memory = cls(size)
        if _LIBC.getrandom(_address(memory._pages, size), size, 0) != size:
            raise OSError(ctypes.get_errno(), "the operating system gave no random bytes")
        return memory

    @contextmanager
    def view(self) -> Iterator[memoryview]:
        """Lend the bytes for as long as they are needed; whoever keeps a copy of them keeps the secret."""
        if self._process != os.getpid():
            raise ValueError("this memory belongs to another process: a fork does not inherit it")
        if not self._finalizer.alive:
            raise ValueError("this memory was wiped")
        with memoryview(self._pages) as view:
            yield view

    def wipe(self) -> None:
        """Overwrite the bytes; also happens when nothing refers to this object any more, and at exit."""
        self._finalizer()


def _address(pages: mmap.mmap, size: int) -> int:
    return ctypes.addressof((ctypes.c_char * size).from_buffer(pages))


def _wipe(pages: mmap.mmap, process: int) -> None:
    if process == os.getpid():  # in a forked process they are zeros already
        pages[:] = bytes(len(pages))
