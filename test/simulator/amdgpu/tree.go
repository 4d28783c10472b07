package amdgpu

import (
	"fmt"
	"hash/fnv"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tree is the files of the machine at one moment, by their paths without links.
type tree struct {
	files map[string]*file
	// boot, loads and generation go into the inode numbers.
	boot              string
	loads, generation int
}

// file is a file, a folder, a link or a device node.
type file struct {
	mode     fs.FileMode
	content  string
	link     string   // where it leads, absolute
	children []string // of a folder, sorted
	// err is what reading and writing it answers.
	err unix.Errno
	// from is when it appears.
	from         time.Time
	major, minor uint32
	gid          uint32
	// gpu is whose file it is, for those that can be written to.
	gpu int
}

func (f *file) isDir() bool { return f.mode.IsDir() }

// add puts a file into the tree, with the folders above it.
func (t *tree) add(name string, f *file) *file {
	if _, ok := t.files[name]; !ok && name != "/" {
		dir, base := path.Dir(name), path.Base(name)
		parent := t.dir(dir)
		parent.children = append(parent.children, base)
	}
	t.files[name] = f
	return f
}

// dir makes a folder, if it is not there.
func (t *tree) dir(name string) *file {
	if f, ok := t.files[name]; ok {
		return f
	}
	return t.add(name, &file{mode: fs.ModeDir | 0o755})
}

// text makes a file of sysfs that can be read.
func (t *tree) text(name, content string) *file {
	return t.add(name, &file{mode: 0o444, content: content + "\n"})
}

// symlink makes a link.
func (t *tree) symlink(name, target string) {
	t.add(name, &file{mode: fs.ModeSymlink | 0o777, link: target})
}

// sort puts the names in each folder in order, as ReadDir has them.
func (t *tree) sort() {
	for _, f := range t.files {
		slices.Sort(f.children)
	}
}

// maxLinks is how many links a path may go through (Linux' MAXSYMLINKS).
const maxLinks = 40

// resolve follows the links in a path.
func (t *tree) resolve(name string) (string, *file, error) {
	if !strings.HasPrefix(name, "/") {
		return "", nil, unix.ENOENT
	}
	done, rest := "", strings.Split(strings.Trim(path.Clean(name), "/"), "/")
	f := t.files["/"]
	for links := 0; len(rest) > 0 && rest[0] != ""; {
		next, ok := t.files[done+"/"+rest[0]]
		switch {
		case !ok && f != nil && !f.isDir():
			return "", nil, unix.ENOTDIR
		case !ok:
			return "", nil, unix.ENOENT
		case next.link != "":
			if links++; links > maxLinks {
				return "", nil, unix.ELOOP
			}
			rest = append(strings.Split(strings.Trim(next.link, "/"), "/"), rest[1:]...)
			done, f = "", t.files["/"]
			continue
		}
		done, f, rest = done+"/"+rest[0], next, rest[1:]
	}
	if f == nil {
		return "", nil, unix.ENOENT
	}
	if done == "" {
		done = "/"
	}
	return done, f, nil
}

// inode identifies a file for as long as it is there: sysfs' go with the driver,
// and those of KFD's topology with each change of it.
func (t *tree) inode(name string) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s %d %s", t.boot, t.loads, name)
	if strings.HasPrefix(name, topologyDir) {
		_, _ = fmt.Fprintf(h, " %d", t.generation)
	}
	return h.Sum64()
}
