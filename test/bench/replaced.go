package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// replaced counts the files that are put in place by a rename below some
// folders. The kernel notes each rename before the program that makes it goes
// on, so what was done before an answer is counted after it.
type replaced struct {
	fd int
	// folders are by inotify's number.
	folders map[int32]string
}

func watchReplaced(folders ...string) (*replaced, error) {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("start inotify: %w", err)
	}
	r := &replaced{fd: fd, folders: map[int32]string{}}
	for _, folder := range folders {
		if _, err := r.add(folder); err != nil {
			_ = r.close()
			return nil, err
		}
	}
	return r, nil
}

func (r *replaced) close() error { return unix.Close(r.fd) }

// add watches a folder and all below, and counts the files that are there.
func (r *replaced) add(folder string) (files int, err error) {
	err = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case !d.IsDir():
			files++
			return nil
		}
		number, err := unix.InotifyAddWatch(r.fd, path, unix.IN_MOVED_TO|unix.IN_CREATE|unix.IN_ONLYDIR)
		if err != nil {
			return fmt.Errorf("watch %s: %w", path, err)
		}
		r.folders[int32(number)] = path
		return nil
	})
	return files, err
}

// names lists the files that were replaced since the last call. The files of a
// new folder count as such.
func (r *replaced) names() ([]string, error) {
	var names []string
	buffer := make([]byte, 64<<10)
	for {
		n, err := unix.Read(r.fd, buffer)
		if errors.Is(err, unix.EAGAIN) {
			return names, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read from inotify: %w", err)
		}
		for event := buffer[:n]; len(event) >= unix.SizeofInotifyEvent; {
			end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(event[12:]))
			name := strings.TrimRight(string(event[unix.SizeofInotifyEvent:end]), "\x00")
			path := filepath.Join(r.folders[int32(binary.NativeEndian.Uint32(event))], name)
			mask := binary.NativeEndian.Uint32(event[4:])
			event = event[end:]
			if mask&unix.IN_ISDIR == 0 {
				if mask&unix.IN_MOVED_TO != 0 {
					names = append(names, path)
				}
				continue
			}
			files, err := r.add(path)
			if err != nil {
				return nil, err
			}
			for range files {
				names = append(names, path+"/…")
			}
		}
	}
}
