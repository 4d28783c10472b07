package node

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

// hookPath is where the host finds the program that CDI hooks run.
func (c *Config) hookPath() string { return filepath.Join(c.dataDir(), "nvidia-cdi-hook") }

// installHook puts the program that CDI hooks run where the host finds it. The
// runtime runs hooks on the host, outside our container.
func (c *Config) installHook() error {
	target := c.hookPath()
	program, err := os.Open(c.CDIHook)
	if err != nil {
		return fmt.Errorf("read the program for CDI hooks: %w", err)
	}
	defer program.Close()
	same, err := sameContent(program, target)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for the installed program for CDI hooks: %w", err)
	}
	if same {
		return nil
	}
	if err := replaceProgram(target, program); err != nil {
		return fmt.Errorf("install the program for CDI hooks on the host: %w", err)
	}
	return nil
}

// replaceProgram puts a program in place. It is copied through a small buffer:
// what a start has once had in memory stays with the process for long.
func replaceProgram(target string, program io.ReadSeeker) error {
	if _, err := program.Seek(0, io.SeekStart); err != nil {
		return err
	}
	file, err := renameio.NewPendingFile(target, renameio.WithPermissions(0o755), renameio.WithTempDir(filepath.Dir(target)))
	if err != nil {
		return err
	}
	defer file.Cleanup() //nolint:errcheck // nothing is left to do when it is in place
	if _, err := io.Copy(file, program); err != nil {
		return err
	}
	return file.CloseAtomicallyReplace()
}

// sameContent tells whether a file has the content of a reader.
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
		if !bytes.Equal(a[:n], b[:m]) {
			return false, nil
		}
		if errA != nil || errB != nil {
			return true, nil
		}
	}
}
