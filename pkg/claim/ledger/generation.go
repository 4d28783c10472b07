package ledger

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// generation counts the changes of a ledger's folder, over all processes that
// work on it: during a rolling update, the old plugin and the new one do. It
// lives in a page of memory that they share, so that to look whether the other
// has changed anything costs nothing. It need not survive a crash: a process
// that starts reads everything.
type generation struct {
	page  []byte
	count *atomic.Uint64
}

func openGeneration(path string) (*generation, error) {
	page, err := sharePage(path)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EOPNOTSUPP) {
		// A full disk, or an odd file system, must not keep the driver from
		// releasing claims. Without the page it does not see whether another
		// process has changed anything, and reads all records each time.
		return &generation{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("share the ledger's change counter %s with other processes: %w", path, err)
	}
	// A page is aligned for any atomic type.
	return &generation{page: page, count: (*atomic.Uint64)(unsafe.Pointer(&page[0]))}, nil
}

func sharePage(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	size := os.Getpagesize()
	// The page must have its place on the disk before it is mapped: to find
	// none later would end the process.
	if err := unix.Fallocate(int(file.Fd()), 0, 0, int64(size)); err != nil {
		return nil, err
	}
	return unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// get is the number of changes so far.
func (g *generation) get() uint64 {
	if g.count == nil {
		return 0
	}
	return g.count.Load()
}

// shared tells whether get sees the changes of other processes.
func (g *generation) shared() bool { return g.count != nil }

// add counts a change of our own and returns the new number.
func (g *generation) add() uint64 {
	if g.count == nil {
		return 0
	}
	return g.count.Add(1)
}

func (g *generation) close() error {
	if g.page == nil {
		return nil
	}
	return unix.Munmap(g.page)
}
