package simulate

import (
	"bytes"
	"io"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"github.com/tranche-dev/tranche/pkg/hardware/simulate/disk"
	"github.com/tranche-dev/tranche/pkg/hardware/simulate/mpscontrol"
)

// toolsName is the one copy of the programs that have all its names.
const toolsName = "simulated-nvidia-tools"

// installTools puts the program into a folder, under every name that it goes by.
// Those that run go on with what they were started from.
func installTools(program, bin string) error {
	installed := filepath.Join(bin, toolsName)
	if err := copyProgram(program, installed); err != nil {
		return err
	}
	info, err := os.Stat(installed)
	if err != nil {
		return err
	}
	for _, name := range mpscontrol.Programs() {
		path := filepath.Join(bin, name)
		if old, err := os.Stat(path); err == nil && os.SameFile(old, info) {
			continue
		}
		next := path + ".next"
		if err := disk.RemoveFile(next); err != nil {
			return err
		}
		if err := os.Link(installed, next); err != nil {
			return err
		}
		if err := os.Rename(next, path); err != nil {
			return err
		}
	}
	return nil
}

// copyProgram replaces a program atomically, unless it is the same. It goes through
// small buffers: what a start has once had in memory stays with the process for long.
func copyProgram(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	if isCopy(source, to) {
		return nil
	}
	if _, err := source.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	target, err := renameio.NewPendingFile(to, renameio.WithPermissions(0o755), renameio.WithTempDir(filepath.Dir(to)))
	if err != nil {
		return err
	}
	defer target.Cleanup() //nolint:errcheck // nothing is left to do when it is in place
	if _, err := io.Copy(target, source); err != nil {
		return err
	}
	return target.CloseAtomicallyReplace()
}

// isCopy tells whether a file has the content of a reader.
func isCopy(content io.Reader, path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	a, b := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, errA := io.ReadFull(content, a)
		m, errB := io.ReadFull(file, b)
		if !bytes.Equal(a[:n], b[:m]) {
			return false
		}
		if errA != nil || errB != nil {
			return true
		}
	}
}
