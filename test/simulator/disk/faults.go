package disk

import (
	"errors"
	"io/fs"
	"os"
	"sync"
)

// ReadFaults reads a file of faults. One that is not there has none.
func ReadFaults[F any](path string, parse func([]byte) (*F, error)) (*F, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return new(F), nil
	}
	if err != nil {
		return nil, err
	}
	return parse(data)
}

// Faults keeps the last readable faults of a file.
type Faults[F any] struct {
	Path  string
	Parse func([]byte) (*F, error)
	// Report is told why a file is not readable, once for each version of the file.
	Report func(err error)

	// mu protects what was last read, which is shared and never changed.
	mu     sync.Mutex
	id     FileID
	faults *F
}

// Read returns the faults of now, and which version of the file they are from. A broken
// file changes nothing, so that a half-written edit does not undo a test's set-up.
func (r *Faults[F]) Read() (*F, FileID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id, err := Identify(r.Path)
	if err == nil && r.faults != nil && id == r.id {
		return r.faults, id
	}
	var f *F
	if err == nil {
		f, err = ReadFaults(r.Path, r.Parse)
	}
	if err != nil {
		r.Report(err)
		if f = r.faults; f == nil {
			f = new(F)
		}
	}
	r.faults, r.id = f, id
	return f, id
}
