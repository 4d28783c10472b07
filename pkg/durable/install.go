package durable

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// Install makes the file at a path an executable copy of a program. One that is
// the same is left alone, another is replaced atomically: whoever runs it goes on
// with what it was started from. The folder must be there.
//
// The program goes through small buffers: what a start has once had in memory
// stays with the process for long.
func Install(program io.ReadSeeker, path string) error {
	same, err := sameContent(program, path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look at the program that is there: %w", err)
	}
	if same {
		return nil
	}
	if _, err := program.Seek(0, io.SeekStart); err != nil {
		return err
	}
	file, err := renameio.NewPendingFile(path, renameio.WithPermissions(0o755), renameio.WithTempDir(filepath.Dir(path)))
	if err != nil {
		return err
	}
	defer file.Cleanup() //nolint:errcheck // nothing is left to do when it is in place
	if _, err := io.Copy(file, program); err != nil {
		return err
	}
	return file.CloseAtomicallyReplace()
}

func sameContent(content io.Reader, path string) (bool, error) {
	file, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer file.Close()
	a, b := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, errA := io.ReadFull(content, a)
		m, errB := io.ReadFull(file, b)
		for _, err := range []error{errA, errB} {
			if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				return false, err
			}
		}
		if !bytes.Equal(a[:n], b[:m]) {
			return false, nil
		}
		if n < len(a) {
			return true, nil // both have ended
		}
	}
}
