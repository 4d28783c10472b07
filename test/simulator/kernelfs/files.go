package kernelfs

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

var (
	_ fusefs.NodeOpener    = (*node)(nil)
	_ fusefs.NodeSetattrer = (*node)(nil)
	_ fusefs.NodeCreater   = (*node)(nil)
	_ fusefs.NodeMkdirer   = (*node)(nil)
	_ fusefs.NodeSymlinker = (*node)(nil)
	_ fusefs.NodeRenamer   = (*node)(nil)
	_ fusefs.NodeUnlinker  = (*node)(nil)
	_ fusefs.NodeRmdirer   = (*node)(nil)

	_ fusefs.FileFlusher  = (*kernelFile)(nil)
	_ fusefs.FileReader   = (*kernelFile)(nil)
	_ fusefs.FileWriter   = (*kernelFile)(nil)
	_ fusefs.FileReader   = (*fileBelow)(nil)
	_ fusefs.FileWriter   = (*fileBelow)(nil)
	_ fusefs.FileReleaser = (*fileBelow)(nil)
)

// Open implements fusefs.NodeOpener. A file of the kernel that takes nothing cannot be opened to write
// to it, not even by root (kernfs_fop_open in Linux' fs/kernfs/file.c).
func (n *node) Open(_ context.Context, flags uint32) (fusefs.FileHandle, uint32, syscall.Errno) {
	f, err := n.tree.find(n.path())
	if err != nil {
		return nil, 0, errnoOf(err)
	}
	if !f.kernel {
		return n.openBelow(n.path(), flags)
	}
	if writes := flags&syscall.O_ACCMODE != syscall.O_RDONLY; writes && f.Mode.Perm()&0o222 == 0 {
		return nil, 0, syscall.EACCES
	}
	return &kernelFile{node: n}, fuse.FOPEN_DIRECT_IO, 0
}

func (n *node) openBelow(name string, flags uint32) (fusefs.FileHandle, uint32, syscall.Errno) {
	file, err := os.OpenFile(n.tree.below+name, int(flags)&^syscall.O_APPEND, 0o644)
	if err != nil {
		return nil, 0, errnoOf(err)
	}
	return &fileBelow{file}, fuse.FOPEN_DIRECT_IO, 0
}

// kernelFile is an open file of the kernel.
type kernelFile struct {
	*node

	// mu protects what the file said when it was last read from its beginning.
	mu   sync.Mutex
	said []byte
}

// Read implements fusefs.FileReader.
func (f *kernelFile) Read(_ context.Context, into []byte, offset int64) (fuse.ReadResult, syscall.Errno) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if offset == 0 {
		said, err := f.tree.kernel.ReadFile(f.tree.from + f.path())
		if err != nil {
			return nil, errnoOf(err)
		}
		f.said = said
	}
	rest := f.said[min(offset, int64(len(f.said))):]
	return fuse.ReadResultData(rest[:min(len(into), len(rest))]), 0
}

// Flush implements fusefs.FileFlusher: there is nothing to do, and the kernel of this machine need not ask again.
func (f *kernelFile) Flush(context.Context) syscall.Errno { return syscall.ENOSYS }

// Write implements fusefs.FileWriter: each write is a request of its own.
func (f *kernelFile) Write(_ context.Context, data []byte, _ int64) (uint32, syscall.Errno) {
	if err := f.tree.kernel.WriteFile(f.tree.from+f.path(), data); err != nil {
		return 0, errnoOf(err)
	}
	return uint32(len(data)), 0
}

// fileBelow is an open file of the folder below.
type fileBelow struct{ file *os.File }

// Read implements fusefs.FileReader.
func (f *fileBelow) Read(_ context.Context, into []byte, offset int64) (fuse.ReadResult, syscall.Errno) {
	return fuse.ReadResultFd(f.file.Fd(), offset, len(into)), 0
}

// Write implements fusefs.FileWriter.
func (f *fileBelow) Write(_ context.Context, data []byte, offset int64) (uint32, syscall.Errno) {
	n, err := f.file.WriteAt(data, offset)
	return uint32(n), errnoOf(err)
}

// Release implements fusefs.FileReleaser.
func (f *fileBelow) Release(context.Context) syscall.Errno { return errnoOf(f.file.Close()) }

// Setattr implements fusefs.NodeSetattrer. Only a file below can be cut, or have another mode.
func (n *node) Setattr(ctx context.Context, handle fusefs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	f, err := n.tree.find(n.path())
	if size, ok := in.GetSize(); err == nil && ok && !f.kernel {
		err = os.Truncate(n.tree.below+n.path(), int64(size))
	}
	if mode, ok := in.GetMode(); err == nil && ok && !f.kernel {
		err = os.Chmod(n.tree.below+n.path(), os.FileMode(mode&0o777))
	}
	if err != nil {
		return errnoOf(err)
	}
	return n.Getattr(ctx, handle, out)
}

// added returns the entry for something that was made in the folder below, if there was no error.
func (n *node) added(ctx context.Context, name string, out *fuse.EntryOut, err error) (*fusefs.Inode, syscall.Errno) {
	if err != nil {
		return nil, errnoOf(err)
	}
	return n.Lookup(ctx, name, out)
}

// place returns where something with a name is to be made in the folder below.
func (n *node) place(name string) (string, error) {
	folder := n.tree.below + n.path()
	return filepath.Join(folder, name), os.MkdirAll(folder, 0o755)
}

// Create implements fusefs.NodeCreater.
func (n *node) Create(ctx context.Context, name string, flags, _ uint32, out *fuse.EntryOut) (*fusefs.Inode, fusefs.FileHandle, uint32, syscall.Errno) {
	_, err := n.place(name)
	if err != nil {
		return nil, nil, 0, errnoOf(err)
	}
	handle, how, errno := n.openBelow(n.path()+"/"+name, flags|syscall.O_CREAT)
	if errno != 0 {
		return nil, nil, 0, errno
	}
	inode, errno := n.Lookup(ctx, name, out)
	return inode, handle, how, errno
}

// Mkdir implements fusefs.NodeMkdirer.
func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	at, err := n.place(name)
	if err == nil {
		err = os.Mkdir(at, os.FileMode(mode&0o777))
	}
	return n.added(ctx, name, out, err)
}

// Symlink implements fusefs.NodeSymlinker.
func (n *node) Symlink(ctx context.Context, target, name string, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	at, err := n.place(name)
	if err == nil {
		err = os.Symlink(target, at)
	}
	return n.added(ctx, name, out, err)
}

// Rename implements fusefs.NodeRenamer.
func (n *node) Rename(_ context.Context, name string, folder fusefs.InodeEmbedder, newName string, _ uint32) syscall.Errno {
	to, ok := folder.(*node)
	if !ok {
		return syscall.EXDEV
	}
	at, err := to.place(newName)
	if err == nil {
		err = os.Rename(n.tree.below+n.path()+"/"+name, at)
	}
	return errnoOf(err)
}

// Unlink implements fusefs.NodeUnlinker.
func (n *node) Unlink(_ context.Context, name string) syscall.Errno {
	return errnoOf(os.Remove(n.tree.below + n.path() + "/" + name))
}

// Rmdir implements fusefs.NodeRmdirer.
func (n *node) Rmdir(_ context.Context, name string) syscall.Errno {
	return errnoOf(syscall.Rmdir(n.tree.below + n.path() + "/" + name))
}
