package image

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Libraries returns entries for the ELF loader and the shared libraries that
// the binary needs, directly or through another library, each at the path at
// which the host has it. A statically linked binary or a script needs none.
//
// A library that a program opens by name while it runs (dlopen, as with NVML)
// is not among them.
func Libraries(binary string) ([]Entry, error) {
	finder := libraryFinder{root: "/", found: map[string]string{}}
	return finder.entries(binary)
}

// libraryFinder looks libraries up below a root folder, which is / outside of
// tests.
type libraryFinder struct {
	root  string
	dirs  []string          // default folders, absolute within root
	found map[string]string // soname or loader path → path within root
}

func (f *libraryFinder) entries(binary string) ([]Entry, error) {
	if f.dirs == nil {
		f.dirs = defaultLibraryDirs(f.root)
	}
	if err := f.add(binary); err != nil {
		return nil, fmt.Errorf("find the libraries of %s: %w", binary, err)
	}
	var entries []Entry
	seen := map[string]bool{}
	for _, lib := range f.found {
		if !seen[lib] {
			seen[lib] = true
			entries = append(entries, Entry{Path: lib, Source: filepath.Join(f.root, lib), Mode: 0o755})
		}
	}
	return entries, nil
}

// add follows one ELF file, which lies at a path of the host.
func (f *libraryFinder) add(file string) error {
	binary, err := elf.Open(file)
	if err != nil {
		var format *elf.FormatError
		if errors.As(err, &format) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil // a script, or anything else that no loader reads
		}
		return err
	}
	defer binary.Close()
	if loader := interpreter(binary); loader != "" && f.found[loader] == "" {
		f.found[loader] = loader
		f.found[path.Base(loader)] = loader // libc names its loader as a library
	}
	names, err := binary.ImportedLibraries()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := f.addLibrary(binary, file, name); err != nil {
			return err
		}
	}
	return nil
}

func (f *libraryFinder) addLibrary(user *elf.File, file, name string) error {
	if f.found[name] != "" {
		return nil
	}
	dirs := append(f.runPaths(user, file), f.dirs...)
	for _, dir := range dirs {
		lib := path.Join(dir, name)
		if sameMachine(user, filepath.Join(f.root, lib)) {
			f.found[name] = lib
			return f.add(filepath.Join(f.root, lib))
		}
	}
	return fmt.Errorf("library %s, needed by %s, is in none of: %s", name, file, strings.Join(dirs, " "))
}

// runPaths are the folders that the binary itself names.
func (f *libraryFinder) runPaths(binary *elf.File, file string) []string {
	var dirs []string
	for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
		values, err := binary.DynString(tag)
		if err != nil {
			continue
		}
		origin := path.Join("/", strings.TrimPrefix(filepath.Dir(file), filepath.Clean(f.root)))
		for _, value := range values {
			for dir := range strings.SplitSeq(value, ":") {
				dir = strings.NewReplacer("$ORIGIN", origin, "${ORIGIN}", origin).Replace(dir)
				if path.IsAbs(dir) {
					dirs = append(dirs, dir)
				}
			}
		}
	}
	return dirs
}

func interpreter(binary *elf.File) string {
	for _, program := range binary.Progs {
		if program.Type != elf.PT_INTERP {
			continue
		}
		data := make([]byte, program.Filesz)
		if _, err := program.ReadAt(data, 0); err == nil {
			return strings.TrimRight(string(data), "\x00")
		}
	}
	return ""
}

// sameMachine tells a library of the binary's own architecture from one of
// another that a multi-architecture system has beside it.
func sameMachine(user *elf.File, lib string) bool {
	file, err := elf.Open(lib)
	if err != nil {
		return false
	}
	defer file.Close()
	return file.Class == user.Class && file.Machine == user.Machine
}

// defaultLibraryDirs are the folders of /etc/ld.so.conf and those that loaders
// know without it.
func defaultLibraryDirs(root string) []string {
	dirs := readLoaderConfig(root, "/etc/ld.so.conf", 0)
	return append(dirs, "/lib64", "/usr/lib64", "/lib", "/usr/lib")
}

func readLoaderConfig(root, file string, depth int) []string {
	const deepest = 4 // a file that includes itself must not hang us
	content, err := os.Open(filepath.Join(root, file))
	if err != nil || depth > deepest {
		return nil
	}
	defer content.Close()
	var dirs []string
	for lines := bufio.NewScanner(content); lines.Scan(); {
		line, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(line)
		switch {
		case len(fields) == 2 && fields[0] == "include":
			matches, _ := filepath.Glob(filepath.Join(root, fields[1]))
			for _, match := range matches {
				dirs = append(dirs, readLoaderConfig(root, path.Join("/", strings.TrimPrefix(match, filepath.Clean(root))), depth+1)...)
			}
		case len(fields) == 1 && path.IsAbs(fields[0]):
			dirs = append(dirs, fields[0])
		}
	}
	return dirs
}
