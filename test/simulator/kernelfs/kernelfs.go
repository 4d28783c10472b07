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
	"sync"
	"syscall"

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
// What is in that folder already can be read beside them.
func Mount(kernel Kernel, from, at string) (*Mounted, error) {
	below, err := os.Open(at)
	if err != nil {
		return nil, err
	}
	root := &node{tree: &tree{kernel: kernel, from: from, below: filepath.Join("/proc/self/fd", strconv.Itoa(int(below.Fd())))}}
	server, err := fusefs.Mount(at, root, &fusefs.Options{
		// Nothing is remembered: files come and go with the hardware.
		EntryTimeout: nil, AttrTimeout: nil, NegativeTimeout: nil,
		MountOptions: fuse.MountOptions{AllowOther: true, FsName: "simulated-kernel", Name: "simulated", DirectMount: true},
	})
	if err != nil {
		return nil, errors.Join(err, below.Close())
	}
	return &Mounted{server, below}, nil
}

// Close takes the file system away.
func (m *Mounted) Close() error { return errors.Join(m.server.Unmount(), m.below.Close()) }

// Wait returns when the file system was taken away.
func (m *Mounted) Wait() { m.server.Wait() }

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

// node is a file by its path.
type node struct {
	fusefs.Inode
	tree *tree
	path string
}

var (
	_ fusefs.NodeLookuper   = (*node)(nil)
	_ fusefs.NodeReaddirer  = (*node)(nil)
	_ fusefs.NodeGetattrer  = (*node)(nil)
	_ fusefs.NodeSetattrer  = (*node)(nil)
	_ fusefs.NodeReadlinker = (*node)(nil)
	_ fusefs.NodeOpener     = (*node)(nil)
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
	child := n.path + "/" + name
	f, err := n.tree.find(child)
	if err != nil {
		return nil, errnoOf(err)
	}
	f.fill(&out.Attr)
	return n.NewInode(ctx, &node{tree: n.tree, path: child}, fusefs.StableAttr{Mode: unixMode(f.Mode) & syscall.S_IFMT, Ino: f.Inode}), 0
}

// Readdir implements fusefs.NodeReaddirer.
func (n *node) Readdir(context.Context) (fusefs.DirStream, syscall.Errno) {
	names, err := n.tree.list(n.path)
	if err != nil {
		return nil, errnoOf(err)
	}
	entries := make([]fuse.DirEntry, 0, len(names))
	for _, name := range names {
		if f, err := n.tree.find(n.path + "/" + name); err == nil {
			entries = append(entries, fuse.DirEntry{Name: name, Mode: unixMode(f.Mode), Ino: f.Inode})
		}
	}
	return fusefs.NewListDirStream(entries), 0
}

// Getattr implements fusefs.NodeGetattrer.
func (n *node) Getattr(_ context.Context, _ fusefs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	f, err := n.tree.find(n.path)
	if err != nil {
		return errnoOf(err)
	}
	f.fill(&out.Attr)
	return 0
}

// Setattr implements fusefs.NodeSetattrer: a file can be opened to be cut, which does nothing.
func (n *node) Setattr(ctx context.Context, handle fusefs.FileHandle, _ *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	return n.Getattr(ctx, handle, out)
}

// Readlink implements fusefs.NodeReadlinker.
func (n *node) Readlink(context.Context) ([]byte, syscall.Errno) {
	f, err := n.tree.find(n.path)
	return []byte(f.link), errnoOf(err)
}

// Open implements fusefs.NodeOpener. A file that takes nothing cannot be opened to write to it, not
// even by root (kernfs_fop_open in Linux' fs/kernfs/file.c).
func (n *node) Open(_ context.Context, flags uint32) (fusefs.FileHandle, uint32, syscall.Errno) {
	f, err := n.tree.find(n.path)
	if err != nil {
		return nil, 0, errnoOf(err)
	}
	if writes := flags&syscall.O_ACCMODE != syscall.O_RDONLY; writes && f.Mode.Perm()&0o222 == 0 {
		return nil, 0, syscall.EACCES
	}
	return &handle{node: n, kernel: f.kernel}, fuse.FOPEN_DIRECT_IO, 0
}

// handle is an open file.
type handle struct {
	*node
	kernel bool

	// mu protects what the file said when it was last read from its beginning.
	mu   sync.Mutex
	said []byte
}

var (
	_ fusefs.FileReader = (*handle)(nil)
	_ fusefs.FileWriter = (*handle)(nil)
)

func (h *handle) content() ([]byte, error) {
	if h.kernel {
		return h.tree.kernel.ReadFile(h.tree.from + h.path)
	}
	return os.ReadFile(h.tree.below + h.path)
}

// Read implements fusefs.FileReader.
func (h *handle) Read(_ context.Context, into []byte, offset int64) (fuse.ReadResult, syscall.Errno) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if offset == 0 {
		said, err := h.content()
		if err != nil {
			return nil, errnoOf(err)
		}
		h.said = said
	}
	rest := h.said[min(offset, int64(len(h.said))):]
	return fuse.ReadResultData(rest[:min(len(into), len(rest))]), 0
}

// Write implements fusefs.FileWriter: each write is a request of its own.
func (h *handle) Write(_ context.Context, data []byte, _ int64) (uint32, syscall.Errno) {
	if !h.kernel {
		return 0, syscall.EACCES
	}
	if err := h.tree.kernel.WriteFile(h.tree.from+h.path, data); err != nil {
		return 0, errnoOf(err)
	}
	return uint32(len(data)), 0
}
