package ledger

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// generation counts the changes of a ledger's folder by all processes: during a rolling update,
// two plugins use it. The counter is in a page of shared memory, so reading it is cheap. It need
// not survive a crash, because a process that starts reads all records.
type generation struct {
	// path is the file of the page.
	path string

	// mu protects the fields below.
	mu   sync.Mutex
	page []byte
	// count is nil until the page is shared.
	count atomic.Pointer[atomic.Uint64]
}

// noRoom are the errors of a disk that cannot hold the page now: it is full or read-only, a quota
// is used up, or its file system cannot allocate space. No other process can share the page then,
// and releasing claims must not depend on it.
var noRoom = []error{unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.EOPNOTSUPP}

// share maps the page if that has not been done, and reports whether it has done so now. While the
// disk has no room for the page, get sees no changes of others, and all records are read each time.
// It is called before each change: another process that shares the page learns of a change in no
// other way.
func (g *generation) share() (begun bool, err error) {
	if g.shared() {
		return false, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shared() {
		return false, nil
	}
	page, err := sharePage(g.path)
	if slices.ContainsFunc(noRoom, func(reason error) bool { return errors.Is(err, reason) }) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("share the ledger's change counter %s with other processes: %w", g.path, err)
	}
	g.page = page
	// A page is aligned for any atomic type.
	g.count.Store((*atomic.Uint64)(unsafe.Pointer(&page[0])))
	return true, nil
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
	if count := g.count.Load(); count != nil {
		return count.Load()
	}
	return 0
}

// shared reports whether get sees the changes of other processes.
func (g *generation) shared() bool { return g.count.Load() != nil }

// add counts a change of this process and returns the new number.
func (g *generation) add() uint64 {
	if count := g.count.Load(); count != nil {
		return count.Add(1)
	}
	return 0
}

func (g *generation) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.page == nil {
		return nil
	}
	return unix.Munmap(g.page)
}
