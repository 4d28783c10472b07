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

	// files lets changes of files go on side by side, but none while all files
	// are read: writes for different claims go to different files, and the
	// caller orders the writes for one claim.
	files sync.RWMutex

	// mu protects what follows.
	mu      sync.RWMutex
	records map[types.UID]Record
	// newer are the records that only a newer version can use.
	newer map[types.UID]Newer
	// seen is the number of changes that the records contain.
	seen uint64
}

// Broken is a record file that could not be read and was set aside.
type Broken struct {
	// UID is the claim's UID, taken from the name of the file.
	UID types.UID
	// Path is where the file lies now.
	Path string
	// Err says what is wrong with it.
	Err error
}

// Open reads all records in the folder, which it creates if need be. A file
// that cannot be read as a record is renamed and returned, so that one bad file
// never stops the driver.
func Open(dir string) (*Ledger, []Broken, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("create the ledger's folder: %w", err)
	}
	changes, err := openGeneration(filepath.Clean(dir) + generationSuffix)
	if err != nil {
		return nil, nil, err
	}
	l := &Ledger{dir: dir, changes: changes}
	broken, err := l.readAll()
	if err != nil {
		return nil, nil, errors.Join(err, changes.close())
	}
	return l, broken, nil
}

// Refresh takes in what another process has changed, which is hardly ever
// anything. The caller holds the locks of the GPUs that it is about to work on,
// so what it then sees of them is final.
func (l *Ledger) Refresh() ([]Broken, error) {
	l.mu.RLock()
	current := l.changes.shared() && l.seen == l.changes.get()
	l.mu.RUnlock()
	if current {
		return nil, nil
	}
	return l.readAll()
}

// readAll reads all records and sets broken files aside.
func (l *Ledger) readAll() ([]Broken, error) {
	l.files.Lock()
	defer l.files.Unlock()
	// Before the files: a change in between is read again.
	seen := l.changes.get()
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	records, newer := map[types.UID]Record{}, map[types.UID]Newer{}
	var broken []Broken
	for _, entry := range entries {
		if entry.IsDir() || !strings.HasSuffix(entry.Name(), fileSuffix) {
			continue
		}
		uid := types.UID(strings.TrimSuffix(entry.Name(), fileSuffix))
		record, err := l.load(uid)
		needsNewer := (*NewerError)(nil)
		switch {
		case err == nil:
			records[uid] = record
		case errors.As(err, &needsNewer):
			newer[uid] = needsNewer.Newer
		case errors.Is(err, fs.ErrNotExist):
			// Another process has just removed it.
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
	l.records, l.newer, l.seen = records, newer, seen
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
	if err != nil {
		return Record{}, err
	}
	record, err := Decode(data)
	if needsNewer := (*NewerError)(nil); errors.As(err, &needsNewer) {
		needsNewer.Claim.UID = uid
	}
	if err != nil {
		return Record{}, err
	}
	if record.Claim.UID != uid {
		return Record{}, fmt.Errorf("the record is of claim %s, the file is named for %s", record.Claim.UID, uid)
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

// Has tells whether there is a record of a claim, be it one that only a newer
// version can use.
func (l *Ledger) Has(uid types.UID) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	_, ok := l.records[uid]
	_, isNewer := l.newer[uid]
	return ok || isNewer
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

// On returns the records that hold something on the GPUs, in any order.
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

// DevicesOn are the devices of records that are on one GPU, by its PCI address.
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
	if err := durable.WriteFile(l.path(r.Claim.UID), data); err != nil {
		return fmt.Errorf("write the record of claim %s to %s (is the disk full or read-only?): %w", r.Claim, l.dir, err)
	}
	if err := durable.SyncDir(l.dir); err != nil {
		return err
	}
	l.changed(func() { l.records[r.Claim.UID] = r.Clone() })
	return nil
}

// changed takes a change of a file over into memory and tells other processes.
func (l *Ledger) changed(apply func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	apply()
	// If somebody else has changed something meanwhile, seen stays behind, and
	// the next Refresh reads it.
	if now := l.changes.add(); now == l.seen+1 {
		l.seen = now
	}
}

// Delete removes a record. One that is not there is no error.
func (l *Ledger) Delete(uid types.UID) error {
	l.files.RLock()
	defer l.files.RUnlock()
	if err := os.Remove(l.path(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the record of claim %s: %w", uid, err)
	}
	if err := durable.SyncDir(l.dir); err != nil {
		return err
	}
	l.changed(func() { delete(l.records, uid) })
	return nil
}
