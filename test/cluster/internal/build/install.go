package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Install builds the parts that are missing, the named optional ones among them.
// Installations that run at the same time wait for each other. It tells progress of every
// part.
func (d Dir) Install(ctx context.Context, source string, progress func(format string, args ...any), optional ...string) error {
	if len(d.Missing(optional...)) == 0 {
		return nil
	}
	if err := os.MkdirAll(string(d), 0o755); err != nil {
		return fmt.Errorf("make the folder for built parts: %w", err)
	}
	unlock, err := d.lock(progress)
	if err != nil {
		return err
	}
	defer unlock()
	missing := d.Missing(optional...) // again: a build that was waited for may have installed some
	wanted := parts(optional...)
	for i, part := range wanted {
		if !slices.Contains(missing, part.name) {
			continue
		}
		if err := d.installPart(ctx, source, part, fmt.Sprintf("[%d/%d]", i+1, len(wanted)), progress); err != nil {
			return fmt.Errorf("build %s: %w", part.name, err)
		}
	}
	return nil
}

func (d Dir) installPart(ctx context.Context, source string, part part, number string, progress func(string, ...any)) error {
	began := time.Now()
	progress("%s building %s …", number, part.name)
	stop := every(30*time.Second, func() {
		progress("%s still building %s, %s so far", number, part.name, time.Since(began).Round(time.Second))
	})
	defer stop()
	out, err := os.MkdirTemp(string(d), ".build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(out)
	for _, file := range part.files {
		if err := os.MkdirAll(filepath.Join(out, filepath.Dir(file)), 0o755); err != nil {
			return err
		}
	}
	if err := part.build(ctx, job{source: source, out: out, install: d}); err != nil {
		return err
	}
	// Moved one by one: a part whose files are not all there is built again.
	for _, file := range part.files {
		target := filepath.Join(string(d), file)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(out, file), target); err != nil {
			return err
		}
	}
	progress("%s %s: done in %s", number, part.name, time.Since(began).Round(time.Second))
	return nil
}

func (d Dir) lock(progress func(string, ...any)) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(string(d), "lock"), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		progress("another installation is at work in %s: waiting for it", d)
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", d, err)
	}
	return func() { file.Close() }, nil
}

// FindSource returns the folder of this Go module, looked for from the working
// directory upwards.
func FindSource() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		for _, candidate := range []string{dir, filepath.Join(dir, "test", "cluster")} {
			content, err := os.ReadFile(filepath.Join(candidate, "go.mod"))
			if err == nil && strings.HasPrefix(string(content), "module "+module+"\n") {
				return candidate, nil
			}
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("the source of %s is not to be found from %s upwards: run this in a clone of Tranche, or give --source", module, start)
		}
	}
}

// every calls f at intervals until stop is called.
func every(interval time.Duration, f func()) (stop func()) {
	ticker, done := time.NewTicker(interval), make(chan struct{})
	go func() {
		for {
			select {
			case <-ticker.C:
				f()
			case <-done:
				return
			}
		}
	}()
	return func() { ticker.Stop(); close(done) }
}
