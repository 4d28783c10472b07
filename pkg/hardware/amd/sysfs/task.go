package sysfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/tranche-dev/tranche/pkg/hardware"
)

// Task holds a gate. All calls to files are made through it: a write to sysfs can hang in the
// kernel, and nothing can cancel it.
type Task struct {
	*hardware.Task
	files Files
}

// through runs f alone at the gate and returns when f does or ctx ends, whichever is first.
func through[T any](ctx context.Context, m *Machine, g *hardware.Gate, f func(*Task) (T, error)) (T, error) {
	return hardware.Through(ctx, g, func(t *hardware.Task) (T, error) { return f(&Task{t, m.files}) })
}

func call[T any](t *Task, op, doing, name string, f func() (T, error)) (T, error) {
	return hardware.Ask(t.Task, doing+" "+name, func() (T, error) {
		value, err := f()
		if path := new(fs.PathError); errors.As(err, &path) {
			err = path.Err // the path is named below
		}
		if err != nil {
			return value, fmt.Errorf("%s: %s %s: %w", t.Subject(), op, name, err)
		}
		return value, nil
	})
}

// Read returns the content without the white space around it.
func (t *Task) Read(name string) (string, error) {
	data, err := call(t, "read", "reading", name, func() ([]byte, error) { return t.files.ReadFile(name) })
	return strings.TrimSpace(string(data)), err
}

// ReadOptional reads a file that not every driver has. It is empty if the file does not exist.
func (t *Task) ReadOptional(name string) (string, error) {
	text, err := t.Read(name)
	if Absent(err) {
		return "", nil
	}
	return text, err
}

// Write writes a text in one call.
func (t *Task) Write(name, text string) error {
	_, err := call(t, "write "+text+" to", "writing "+text+" to", name, func() (struct{}, error) {
		return struct{}{}, t.files.WriteFile(name, []byte(text))
	})
	return err
}

// List returns the names in a folder, sorted.
func (t *Task) List(name string) ([]string, error) {
	return call(t, "list", "listing", name, func() ([]string, error) { return t.files.ReadDir(name) })
}

// Stat describes a file without reading it.
func (t *Task) Stat(name string) (Info, error) {
	return call(t, "look at", "looking at", name, func() (Info, error) { return t.files.Stat(name) })
}

// RealPath returns the path without symbolic links.
func (t *Task) RealPath(name string) (string, error) {
	return call(t, "follow", "following", name, func() (string, error) { return t.files.EvalSymlinks(name) })
}

// On returns a task at the same gate for other files.
func (t *Task) On(files Files) *Task { return &Task{t.Task, files} }

// Undoing returns a task at the same gate that outlives the caller's time.
func (t *Task) Undoing() *Task { return &Task{t.Task.Undoing(), t.files} }

// Absent reports whether an error says that a file does not exist.
func Absent(err error) bool { return errors.Is(err, fs.ErrNotExist) }
