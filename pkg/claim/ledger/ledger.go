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

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/pkg/durable"
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

// Broken is a file that is no valid record and was set aside.
type Broken struct {
	// UID is the claim's UID, taken from the name of the file.
	UID types.UID
	// Path is the new path of the file.
	Path string
	// Err says what is wrong with it.
	Err error
}

// Open reads all records in the folder, which it creates if it does not exist. A file that is
// not a valid record is renamed and returned, so that it does not stop the plugin. A file that
// cannot be read stays where it is (see Unusable), and the next Refresh reads it again.
func Open(dir string) (*Ledger, []Broken, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("create the folder of the ledger: %w", err)
	}
	l := &Ledger{dir: dir, changes: &generation{path: filepath.Clean(dir) + generationSuffix}}
	broken, err := l.readAll()
	if err != nil {
		return nil, nil, errors.Join(err, l.changes.close())
	}
	return l, broken, nil
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

// readAll reads all records and sets broken files aside. If it fails, the next Refresh reads again.
func (l *Ledger) readAll() (broken []Broken, err error) {
	l.files.Lock()
	defer l.files.Unlock()
	if err := l.share(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			l.ReadAgain()
		}
	}()
	// Before the files are read: a later change is read by the next Refresh.
	seen := l.changes.get()
	l.mu.Lock()
	l.again = false
	l.mu.Unlock()
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, fmt.Errorf("read the folder of the ledger: %w", err)
	}
	records, unusable := map[types.UID]Record{}, map[types.UID]Unusable{}
	unread := false
	for _, entry := range entries {
		if entry.IsDir() || !strings.HasSuffix(entry.Name(), fileSuffix) {
			continue
		}
		uid := types.UID(strings.TrimSuffix(entry.Name(), fileSuffix))
		record, err := l.load(uid)
		cannot := (*UnusableError)(nil)
		switch {
		case err == nil:
			records[uid] = record
		case errors.As(err, &cannot):
			unusable[uid] = cannot.Unusable
			unread = unread || cannot.Unreadable != nil
		case errors.Is(err, fs.ErrNotExist):
			// another process has just removed it
		default:
			b, err := l.setAside(uid, err)
			if err != nil {
				return nil, err
			}
			broken = append(broken, b)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records, l.unusable, l.seen, l.again = records, unusable, seen, l.again || unread
	return broken, nil
}

func (l *Ledger) setAside(uid types.UID, cause error) (Broken, error) {
	aside := l.path(uid) + brokenSuffix
	if err := os.Rename(l.path(uid), aside); err != nil {
		return Broken{}, fmt.Errorf("set the broken record %s aside: %w", l.path(uid), errors.Join(cause, err))
	}
	return Broken{UID: uid, Path: aside, Err: cause}, nil
}

func (l *Ledger) path(uid types.UID) string {
	return filepath.Join(l.dir, string(uid)+fileSuffix)
}

func (l *Ledger) load(uid types.UID) (Record, error) {
	data, err := os.ReadFile(l.path(uid))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Record{}, err
	case err != nil:
		return Record{}, &UnusableError{Unusable{Claim: ClaimRef{UID: uid}, Unreadable: err}}
	}
	record, err := Decode(data)
	if cannot := (*UnusableError)(nil); errors.As(err, &cannot) {
		cannot.Claim.UID = uid
	}
	if err != nil {
		return Record{}, err
	}
	if record.Claim.UID != uid {
		return Record{}, fmt.Errorf("the file is named for claim %s, but has the record of claim %s", uid, record.Claim.UID)
	}
	return record, nil
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
