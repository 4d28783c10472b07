package sysfs

import "io/fs"

// Files is the part of a host's file system in which amdgpu and KFD show and
// take what they do: /sys, /proc and /dev, by the host's own paths. A call may
// take as long as the kernel does; nothing can cut it short.
//
// Errors are those of the kernel: errors.Is(err, unix.EBUSY) and
// errors.Is(err, fs.ErrNotExist) work on all of them.
type Files interface {
	// ReadFile returns the whole content.
	ReadFile(name string) ([]byte, error)
	// WriteFile writes to a file that exists, in one call, as sysfs wants it.
	WriteFile(name string, data []byte) error
	// ReadDir returns the names in a folder, sorted.
	ReadDir(name string) ([]string, error)
	// EvalSymlinks returns the path without symbolic links.
	EvalSymlinks(name string) (string, error)
	// Stat describes a file, and what a symbolic link leads to.
	Stat(name string) (Info, error)
}

// Info is what is known about a file without reading it.
type Info struct {
	Mode fs.FileMode
	// Inode identifies a folder of sysfs for as long as it is there.
	Inode uint64
	// Major and Minor are the numbers of a device node.
	Major, Minor uint32
	// GID is the group that the file belongs to.
	GID uint32
}
