package sysfs

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/pkg/lists"
)

// Host is the real thing: the files of the machine whose root folder this
// process sees under a name ("/host"; empty or "/" for its own).
func Host(root string) Files { return host{root: strings.TrimSuffix(filepath.Clean("/"+root), "/")} }

type host struct {
	// root has no slash at its end.
	root string
}

func (h host) ReadFile(name string) ([]byte, error) { return os.ReadFile(h.root + name) }

// WriteFile makes a single write: sysfs takes each as a request of its own. The
// file is not created, and not cut, which sysfs does not know.
func (h host) WriteFile(name string, data []byte) error {
	file, err := os.OpenFile(h.root+name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	for {
		// Not file.Write, which takes up again what the kernel took only half of.
		n, err := unix.Write(int(file.Fd()), data)
		switch {
		case err == unix.EINTR: //nolint:errorlint // a system call gives the bare number
			continue
		case err != nil:
			return &fs.PathError{Op: "write", Path: name, Err: err}
		case n != len(data):
			return &fs.PathError{Op: "write", Path: name, Err: unix.EIO}
		}
		return nil
	}
}

func (h host) ReadDir(name string) ([]string, error) {
	entries, err := os.ReadDir(h.root + name)
	if err != nil {
		return nil, err
	}
	return lists.Map(entries, os.DirEntry.Name), nil
}

// EvalSymlinks returns the path by the host's name. Links of sysfs are relative, so
// they lead nowhere outside of the root.
func (h host) EvalSymlinks(name string) (string, error) {
	path, err := filepath.EvalSymlinks(h.root + name)
	return strings.TrimPrefix(path, h.root), err
}

func (h host) Stat(name string) (Info, error) {
	info, err := os.Stat(h.root + name)
	if err != nil {
		return Info{}, err
	}
	out := Info{Mode: info.Mode()}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		out.Inode, out.GID = stat.Ino, stat.Gid
		if info.Mode()&fs.ModeDevice != 0 {
			out.Major, out.Minor = unix.Major(stat.Rdev), unix.Minor(stat.Rdev)
		}
	}
	return out, nil
}
