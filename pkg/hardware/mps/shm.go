package mps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// DefaultShmSize is how much the clients of a daemon can have in /dev/shm, in bytes.
const DefaultShmSize = 1 << 30

// pipeSize limits the folder of the daemon's sockets, in bytes. Sockets take none.
const pipeSize = 1 << 20

// bytesPerInode and fewInodes bound the number of files: an empty one takes kernel memory
// that the size does not count.
const (
	bytesPerInode = 4096
	fewInodes     = 1024
)

// mounts are the folders that containers write to, with their sizes. Each is a tmpfs, so
// that no container can fill the host's /run, which the container runtime needs.
func (f folder) mounts(shmSize int64) map[string]int64 {
	return map[string]int64{f.pipe(): pipeSize, f.shm(): shmSize}
}

// mountTmpfs mounts a folder in the mount namespace of the calling thread. One that is
// mounted stays: containers have it, and a server's shared memory is in it.
func mountTmpfs(dir string, size int64) error {
	mounted, err := isMountPoint(dir)
	if err != nil || mounted {
		return err
	}
	options := fmt.Sprintf("size=%d,nr_inodes=%d,mode=1777", size, max(size/bytesPerInode, fewInodes))
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, options); err != nil {
		return fmt.Errorf("mount a tmpfs of %d bytes at %s for the containers: %w", size, dir, err)
	}
	return nil
}

// isMountPoint reports whether a folder is on another file system than the one above it.
func isMountPoint(dir string) (bool, error) {
	var own, above unix.Stat_t
	if err := unix.Lstat(dir, &own); err != nil {
		return false, &os.PathError{Op: "lstat", Path: dir, Err: err}
	}
	if err := unix.Lstat(filepath.Dir(dir), &above); err != nil {
		return false, &os.PathError{Op: "lstat", Path: filepath.Dir(dir), Err: err}
	}
	return own.Dev != above.Dev, nil
}

// unmountTmpfs takes it away again, in the mount namespace of the calling thread. What is
// in it goes first: another mount namespace may have a copy of the mount that keeps the
// memory. One that is not mounted is no error.
func unmountTmpfs(dir string) error {
	mounted, err := isMountPoint(dir)
	if errors.Is(err, os.ErrNotExist) || err == nil && !mounted {
		return nil
	}
	if err != nil {
		return err
	}
	for mounted {
		_ = emptyFolder(dir) // what cannot be removed goes with the mount
		// Processes that are still ending may have files of it open.
		if err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmount %s: %w", dir, err)
		}
		if mounted, err = isMountPoint(dir); err != nil {
			return err
		}
	}
	return nil
}

// unmount takes away what is mounted for the containers, in the mount namespace of the
// calling thread.
func (f folder) unmount() error {
	var errs []error
	for dir := range f.mounts(0) {
		errs = append(errs, unmountTmpfs(dir))
	}
	return errors.Join(errs...)
}

// unmount takes away what is mounted for a daemon's containers where this process sees
// it, and on the host: a plugin that has started after the daemon has copies of the
// mounts.
func (s *Supervisor) unmount(ctx context.Context, f folder) error {
	if err := f.unmount(); err != nil {
		return err
	}
	if s.cfg.HostRoot == "/" {
		return nil // that was the host's
	}
	ctx, cancel := context.WithTimeout(ctx, launchPatience)
	defer cancel()
	if out, err := s.command(ctx, launch{dir: f, unmount: true}).CombinedOutput(); err != nil {
		return fmt.Errorf("unmount its folders on the host: %w: %s", err, strings.Join(strings.Fields(string(out)), " "))
	}
	return nil
}

// containerLabel is the SELinux label of files that every container may use, as
// container-selinux defines it (container_selinux(8)).
const containerLabel = "system_u:object_r:container_file_t:s0"

// labelForContainers lets containers use folders where SELinux is on, of which
// selinuxDir, the mount of its file system, tells. Files in them get the label from
// their folder.
func labelForContainers(selinuxDir string, dirs ...string) error {
	if _, err := os.Stat(filepath.Join(selinuxDir, "enforce")); err != nil {
		return nil //nolint:nilerr // SELinux is off
	}
	for _, dir := range dirs {
		if err := unix.Lsetxattr(dir, "security.selinux", []byte(containerLabel), 0); err != nil {
			return fmt.Errorf("give %s the SELinux label %s, so that containers can use it: %w", dir, containerLabel, err)
		}
	}
	return nil
}
