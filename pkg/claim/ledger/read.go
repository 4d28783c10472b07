package ledger

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

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
