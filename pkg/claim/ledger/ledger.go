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

	"github.com/google/renameio/v2"
	"k8s.io/apimachinery/pkg/types"
)

const (
	fileSuffix   = ".json"
	brokenSuffix = ".broken"
)

// Ledger keeps the records in a folder and a copy of them in memory. It is safe
// for concurrent use.
type Ledger struct {
	dir string

	// mu protects records. It is not held while a file is written: writes for
	// different claims go to different files, and the caller orders the writes
	// for one claim.
	mu      sync.RWMutex
	records map[types.UID]Record
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
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("read the ledger: %w", err)
	}
	l := &Ledger{dir: dir, records: map[types.UID]Record{}}
	var broken []Broken
	for _, entry := range entries {
		if entry.IsDir() || !strings.HasSuffix(entry.Name(), fileSuffix) {
			continue
		}
		uid := types.UID(strings.TrimSuffix(entry.Name(), fileSuffix))
		record, err := l.load(uid)
		if err == nil {
			l.records[uid] = record
			continue
		}
		aside := l.path(uid) + brokenSuffix
		if renameErr := os.Rename(l.path(uid), aside); renameErr != nil {
			return nil, nil, fmt.Errorf("set the broken record %s aside: %w", l.path(uid), errors.Join(err, renameErr))
		}
		broken = append(broken, Broken{UID: uid, Path: aside, Err: err})
	}
	return l, broken, nil
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

// Put writes a record so that it survives a crash: temporary file, fsync,
// rename, fsync of the folder.
func (l *Ledger) Put(r Record) error {
	data, err := Encode(r)
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(l.path(r.Claim.UID), data, 0o600, renameio.WithTempDir(l.dir)); err != nil {
		return fmt.Errorf("write the record of claim %s to %s (is the disk full or read-only?): %w", r.Claim, l.dir, err)
	}
	if err := syncDir(l.dir); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records[r.Claim.UID] = r.Clone()
	return nil
}

// Delete removes a record. One that is not there is no error.
func (l *Ledger) Delete(uid types.UID) error {
	if err := os.Remove(l.path(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the record of claim %s: %w", uid, err)
	}
	if err := syncDir(l.dir); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.records, uid)
	return nil
}

// syncDir makes a rename or removal in the folder survive a power cut.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open %s to sync it: %w", dir, err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
