package ledger

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// generation counts the changes of a ledger's folder by all processes: during a rolling update,
// two plugins use it. The counter is in a page of shared memory, so reading it is cheap. It need
// not survive a crash, because a process that starts reads all records.
type generation struct {
	page  []byte
	count *atomic.Uint64
}

func openGeneration(path string) (*generation, error) {
	page, err := sharePage(path)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EOPNOTSUPP) {
		// A full disk must not prevent releasing claims. Without the page, all records
		// are read each time.
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
	// The disk space must be allocated before the page is mapped: if it is missing later,
	// the process is killed.
	if err := unix.Fallocate(int(file.Fd()), 0, 0, int64(size)); err != nil {
		return nil, err
	}
	return unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// get returns the number of changes so far.
func (g *generation) get() uint64 {
	if g.count == nil {
		return 0
	}
	return g.count.Load()
}

// shared tells whether get sees the changes of other processes.
func (g *generation) shared() bool { return g.count != nil }

// add counts a change of this process and returns the new number.
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
