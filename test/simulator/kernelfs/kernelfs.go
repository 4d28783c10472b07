// Package kernelfs shows the files of a simulated kernel to every process of a machine, as a file
// system in user space: sysfs takes no files of anybody's own.
package kernelfs

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
)

// Kernel has the files.
type Kernel interface {
	ReadFile(name string) ([]byte, error)
	WriteFile(name string, data []byte) error
	ReadDir(name string) ([]string, error)
	// Lstat tells about a file and where it leads if it is a link, by an absolute path.
	Lstat(name string) (info sysfs.Info, link string, err error)
}

// Mounted is the file system while it is there.
type Mounted struct {
	server *fuse.Server
	below  *os.File
}

// Mount shows the kernel's files below a folder of its own ("/sys") at a folder of this machine.
// What is in that folder already is there beside them, and more can be added: the files of other
// simulated drivers.
func Mount(kernel Kernel, from, at string) (*Mounted, error) {
	below, err := os.Open(at)
	if err != nil {
		return nil, err
	}
	root := &node{tree: &tree{kernel: kernel, from: from, below: filepath.Join("/proc/self/fd", strconv.Itoa(int(below.Fd())))}}
	server, err := fusefs.Mount(at, root, &fusefs.Options{
		MountOptions: fuse.MountOptions{
			AllowOther: true, FsName: "simulated-kernel", Name: "simulated", DirectMount: true, EnableSymlinkCaching: true,
		},
	})
	if err != nil {
		return nil, errors.Join(err, below.Close())
	}
	return &Mounted{server, below}, nil
}

// Close takes the file system away.
func (m *Mounted) Close() error { return errors.Join(m.server.Unmount(), m.below.Close()) }

// tree finds a file: the kernel's first, then the one below.
type tree struct {
	kernel Kernel
	from   string
	below  string
}

// found is a file, with the path to where a link leads.
type found struct {
	sysfs.Info
	link   string
	kernel bool
}

// find returns the file at a path in the file system ("/class/kfd").
func (t *tree) find(name string) (found, error) {
	info, link, err := t.kernel.Lstat(t.from + name)
	if err == nil {
		if link != "" {
			// Relative, as sysfs has them: the machine's root is not that of the reader.
			link, err = filepath.Rel(path.Dir(t.from+name), link)
		}
		return found{info, link, true}, err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return found{}, err
	}
	stat, err := os.Lstat(t.below + name)
	if err != nil {
		return found{}, err
	}
	f := found{Info: sysfs.Info{Mode: stat.Mode()}}
	if s, ok := stat.Sys().(*syscall.Stat_t); ok {
		f.Inode, f.GID = s.Ino, s.Gid
	}
	if stat.Mode()&fs.ModeSymlink != 0 {
		f.link, err = os.Readlink(t.below + name)
	}
	return f, err
}

// list returns the names in a folder.
func (t *tree) list(name string) ([]string, error) {
	names, err := t.kernel.ReadDir(t.from + name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	entries, belowErr := os.ReadDir(t.below + name)
	if err != nil && belowErr != nil {
		return nil, err
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// forever is longer than a file system stays mounted.
const forever = 365 * 24 * time.Hour

// lasting are the folders that no driver and no GPU takes away. This machine's kernel remembers that they are
// there, as it does for those of sysfs: it would otherwise ask for each folder of each path, which takes more
// time than all answers. Whether another file is there is asked each time, because files come and go with the
// hardware.
var lasting = []string{"/bus", "/bus/pci", "/bus/pci/devices", "/bus/pci/drivers", "/class", "/devices", "/devices/pci*", "/devices/pci*/*", "/module"}

func (f found) isLasting(name string) bool {
	return f.kernel && f.Mode.IsDir() && slices.ContainsFunc(lasting, func(pattern string) bool {
		matches, err := path.Match(pattern, name)
		return err == nil && matches
	})
}

// node is a file. Its path is where it is now: a folder above it may have been renamed.
type node struct {
	fusefs.Inode
	tree *tree
}

// path is that in the file system: "/class/kfd", and empty for the root.
func (n *node) path() string {
	if name := n.Path(nil); name != "" {
		return "/" + name
	}
	return ""
}

var (
	_ fusefs.NodeLookuper   = (*node)(nil)
	_ fusefs.NodeReaddirer  = (*node)(nil)
	_ fusefs.NodeGetattrer  = (*node)(nil)
	_ fusefs.NodeReadlinker = (*node)(nil)
)

// sysfsSize is what sysfs says of every file of its.
const sysfsSize = 4096

func (f found) fill(out *fuse.Attr) {
	out.Ino, out.Mode, out.Nlink = f.Inode, unixMode(f.Mode), 1
	out.Gid = f.GID
	if f.Mode.IsRegular() {
		out.Size = sysfsSize
	}
}

func unixMode(mode fs.FileMode) uint32 {
	bits := uint32(mode.Perm())
	switch {
	case mode.IsDir():
		return bits | syscall.S_IFDIR
	case mode&fs.ModeSymlink != 0:
		return bits | syscall.S_IFLNK
	}
	return bits | syscall.S_IFREG
}

func errnoOf(err error) syscall.Errno {
	var number syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &number):
		return number
	case errors.Is(err, fs.ErrNotExist):
		return syscall.ENOENT
	}
	return syscall.EIO
}

// Lookup implements fusefs.NodeLookuper.
func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	child := n.path() + "/" + name
	f, err := n.tree.find(child)
	if err != nil {
		return nil, errnoOf(err)
	}
	f.fill(&out.Attr)
	if f.kernel {
		out.SetAttrTimeout(forever) // they come anew whenever the name is looked up
	}
	if f.isLasting(child) {
		out.SetEntryTimeout(forever)
	}
	return n.NewInode(ctx, &node{tree: n.tree}, fusefs.StableAttr{Mode: unixMode(f.Mode) & syscall.S_IFMT, Ino: f.Inode}), 0
}

// Readdir implements fusefs.NodeReaddirer.
func (n *node) Readdir(context.Context) (fusefs.DirStream, syscall.Errno) {
	names, err := n.tree.list(n.path())
	if err != nil {
		return nil, errnoOf(err)
	}
	entries := make([]fuse.DirEntry, 0, len(names))
	for _, name := range names {
		if f, err := n.tree.find(n.path() + "/" + name); err == nil {
			entries = append(entries, fuse.DirEntry{Name: name, Mode: unixMode(f.Mode), Ino: f.Inode})
		}
	}
	return fusefs.NewListDirStream(entries), 0
}

// Getattr implements fusefs.NodeGetattrer.
func (n *node) Getattr(_ context.Context, _ fusefs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	f, err := n.tree.find(n.path())
	if err != nil {
		return errnoOf(err)
	}
	f.fill(&out.Attr)
	return 0
}

// Readlink implements fusefs.NodeReadlinker.
func (n *node) Readlink(context.Context) ([]byte, syscall.Errno) {
	f, err := n.tree.find(n.path())
	return []byte(f.link), errnoOf(err)
}
