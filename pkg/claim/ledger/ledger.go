package ledger

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/pkg/durable"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

const (
	fileSuffix   = ".json"
	brokenSuffix = ".broken"
	// generationSuffix, behind the name of the folder, names the file that
	// counts its changes.
	generationSuffix = ".generation"
)

// Ledger keeps the records in a folder and a copy of them in memory. It is safe
// for concurrent use, and for use by two processes at once if each calls Refresh
// when it has taken over from the other.
type Ledger struct {
	dir     string
	changes *generation

	// files is read-locked while one file is changed, and locked while all files are read.
	// Changes can be parallel: each claim has its own file, and callers serialize the
	// changes for one claim.
	files sync.RWMutex

	// mu protects the fields below.
	mu      sync.RWMutex
	records map[types.UID]Record
	// unusable has the records that cannot be used now.
	unusable map[types.UID]Unusable
	// seen is the number of changes that records and unusable include.
	seen uint64
	// again: the next Refresh reads everything, because files could not be read or changes may
	// not have been counted.
	again bool
}

// Refresh reads the changes of other processes, if there are any. If the caller holds the locks
// of GPUs, the records on these GPUs are current afterwards.
func (l *Ledger) Refresh() ([]Broken, error) {
	l.mu.RLock()
	current := !l.again && l.changes.shared() && l.seen == l.changes.get()
	l.mu.RUnlock()
	if current {
		return nil, nil
	}
	return l.readAll()
}

// ReadAgain makes the next Refresh read all records.
func (l *Ledger) ReadAgain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.again = true
}

// share shares the counter of changes with other processes. Their changes from before were not
// counted.
func (l *Ledger) share() error {
	begun, err := l.changes.share()
	if begun {
		l.ReadAgain()
	}
	return err
}

// Get returns the record of a claim.
func (l *Ledger) Get(uid types.UID) (Record, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	r, ok := l.records[uid]
	return r.Clone(), ok
}

// Has reports whether there is a record of a claim, including one that cannot be used now.
func (l *Ledger) Has(uid types.UID) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	_, ok := l.records[uid]
	_, unusable := l.unusable[uid]
	return ok || unusable
}

// List returns all records in the order of their claims' UIDs.
func (l *Ledger) List() []Record {
	l.mu.RLock()
	defer l.mu.RUnlock()
	all := make([]Record, 0, len(l.records))
	for _, r := range l.records {
		all = append(all, r.Clone())
	}
	slices.SortFunc(all, func(a, b Record) int { return strings.Compare(string(a.Claim.UID), string(b.Claim.UID)) })
	return all
}

// InUse returns the records of claims that are not released.
func InUse(records []Record) []Record {
	return slices.DeleteFunc(slices.Clone(records), func(r Record) bool { return r.Released })
}

// Held returns what claims that are not released hold, by the PCI address of the GPU. Monitors hold
// nothing.
func Held(records []Record) map[string][]gpu.Placement {
	held := map[string][]gpu.Placement{}
	for _, r := range InUse(records) {
		for _, d := range r.Devices {
			if !d.Admin {
				held[d.Placement.GPU] = append(held[d.Placement.GPU], d.Placement)
			}
		}
	}
	return held
}

// On returns the records that hold devices of the GPUs, in any order.
func (l *Ledger) On(gpus []string) []Record {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var found []Record
	for _, r := range l.records {
		if slices.ContainsFunc(r.Devices, func(d Device) bool { return slices.Contains(gpus, d.Placement.GPU) }) {
			found = append(found, r.Clone())
		}
	}
	return found
}

// DevicesOn returns the devices of all records on one GPU, which is given by its PCI address.
func (l *Ledger) DevicesOn(pciAddress string) []Device {
	return DevicesOn(l.On([]string{pciAddress}), pciAddress)
}

// DevicesOn returns the devices of records on one GPU, which is given by its PCI address.
func DevicesOn(records []Record, gpuID string) []Device {
	var devices []Device
	for _, r := range records {
		for _, d := range r.Devices {
			if d.Placement.GPU == gpuID {
				devices = append(devices, d)
			}
		}
	}
	return devices
}

// Put writes a record so that it survives a crash: temporary file, fsync,
// rename, fsync of the folder.
func (l *Ledger) Put(r Record) error {
	data, err := Encode(r)
	if err != nil {
		return err
	}
	l.files.RLock()
	defer l.files.RUnlock()
	if err := l.share(); err != nil {
		return err
	}
	if err := durable.WriteFile(l.path(r.Claim.UID), data); err != nil {
		return fmt.Errorf("write the record of claim %s to %s (is the disk full or read-only?): %w", r.Claim, l.dir, err)
	}
	if err := durable.SyncDir(l.dir); err != nil {
		return err
	}
	l.changed(func() { l.records[r.Claim.UID] = r.Clone() })
	return nil
}

// changed applies a change of a file in memory, and informs other processes.
func (l *Ledger) changed(apply func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	apply()
	// If another process has changed something meanwhile, seen stays lower, and the next
	// Refresh reads that change.
	if now := l.changes.add(); now == l.seen+1 {
		l.seen = now
	}
}

// Delete removes a record, and the broken file that it was rebuilt from. It is no error if there is
// none.
func (l *Ledger) Delete(uid types.UID) error {
	l.files.RLock()
	defer l.files.RUnlock()
	if err := l.share(); err != nil {
		return err
	}
	for _, file := range []string{l.path(uid) + brokenSuffix, l.path(uid)} {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the record of claim %s: %w", uid, err)
		}
	}
	if err := durable.SyncDir(l.dir); err != nil {
		return err
	}
	l.changed(func() { delete(l.records, uid) })
	return nil
}

func (l *Ledger) path(uid types.UID) string {
	return filepath.Join(l.dir, string(uid)+fileSuffix)
}

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
