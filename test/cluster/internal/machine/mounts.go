package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mountAll gives the machine its view of the files. It runs in the machine's
// own mount namespace. Sources are opened first, since mounts hide them.
func mountAll(spec Spec) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts from the host: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	binds := append(hiddenFolders(spec), spec.Binds...)
	sources, err := openAll(binds)
	defer closeAll(sources)
	if err != nil {
		return err
	}
	stage, err := newStage(spec.Dir)
	if err != nil {
		return err
	}
	defer stage.detach()
	for _, folder := range spec.Overlays {
		if err := stage.overlay(folder); err != nil {
			return err
		}
	}
	for _, folder := range spec.Tmpfs {
		if err := unix.Mount("tmpfs", folder, "tmpfs", unix.MS_NOSUID, "mode=755"); err != nil {
			return fmt.Errorf("mount memory at %s: %w", folder, err)
		}
	}
	for i, bind := range binds {
		if err := mountBind(sources[i], bind); err != nil {
			return err
		}
	}
	for file, content := range spec.Files {
		if err := stage.replace(file, content); err != nil {
			return err
		}
	}
	// Containers with mount propagation need a shared root, as systemd makes it.
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}

// hiddenFolders are the folders to keep that other mounts would hide.
func hiddenFolders(spec Spec) []Bind {
	var binds []Bind
	for _, folder := range spec.Keep {
		for _, hidden := range append(spec.Overlays, spec.Tmpfs...) {
			if strings.HasPrefix(folder+"/", hidden+"/") {
				binds = append(binds, Bind{Source: folder, Target: folder})
				break
			}
		}
	}
	return binds
}

func openAll(binds []Bind) ([]int, error) {
	var sources []int
	for _, bind := range binds {
		fd, err := unix.Open(bind.Source, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return sources, fmt.Errorf("open %s: %w", bind.Source, err)
		}
		sources = append(sources, fd)
	}
	return sources, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

func mountBind(source int, bind Bind) error {
	var stat unix.Stat_t
	if err := unix.Fstat(source, &stat); err != nil {
		return fmt.Errorf("look at %s: %w", bind.Source, err)
	}
	if err := makeTarget(bind.Target, stat.Mode&unix.S_IFMT == unix.S_IFDIR); err != nil {
		return err
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", source), bind.Target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s at %s: %w", bind.Source, bind.Target, err)
	}
	if !bind.ReadOnly {
		return nil
	}
	if err := unix.Mount("", bind.Target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("make %s read-only: %w", bind.Target, err)
	}
	return nil
}

func makeTarget(target string, folder bool) error {
	if folder {
		return os.MkdirAll(target, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return err
	}
	return file.Close()
}

// stage is a file system in memory that holds the writable layers of overlays
// and the content of replaced files. It lives as long as they do.
type stage struct {
	dir   string
	fd    int
	count int
}

func newStage(machineDir string) (*stage, error) {
	dir := filepath.Join(machineDir, "stage")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID, "mode=755"); err != nil {
		return nil, fmt.Errorf("mount memory at %s: %w", dir, err)
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	return &stage{dir: dir, fd: fd}, nil
}

func (s *stage) detach() {
	unix.Close(s.fd)
	_ = unix.Unmount(s.dir, unix.MNT_DETACH)
}

// next returns a new path in the stage, by way of its handle: the stage's own
// path may be hidden by now, or hold characters that mount options cannot.
func (s *stage) next() string {
	s.count++
	return fmt.Sprintf("/proc/self/fd/%d/%d", s.fd, s.count)
}

func (s *stage) overlay(folder string) error {
	upper, work := s.next(), s.next()
	if err := errors.Join(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755)); err != nil {
		return err
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", folder, upper, work)
	if err := unix.Mount("overlay", folder, "overlay", 0, options); err != nil {
		return fmt.Errorf("make %s writable for the machine alone (overlayfs): %w", folder, err)
	}
	return nil
}

func (s *stage) replace(file, content string) error {
	if _, err := os.Stat(file); os.IsNotExist(err) {
		return nil
	}
	replacement := s.next()
	if err := os.WriteFile(replacement, []byte(content), 0o444); err != nil {
		return err
	}
	if err := unix.Mount(replacement, file, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("replace %s: %w", file, err)
	}
	return nil
}
