package amd

import (
	"context"
	"errors"
	"path"
	"strconv"
	"strings"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/gate"
)

// task is one holder of a gate. All calls to files are made through it: a write
// to sysfs can hang in the kernel, and nothing can call it back.
type task struct {
	*gate.Task
	files Files
}

// through runs f alone at the gate and returns when f does or ctx ends,
// whichever is first.
func through[T any](ctx context.Context, g *gate.Gate, files Files, f func(*task) (T, error)) (T, error) {
	return gate.Through(ctx, g, func(t *gate.Task) (T, error) { return f(&task{Task: t, files: files}) })
}

func call[T any](t *task, op, doing, name string, f func() (T, error)) (T, error) {
	return gate.Ask(t.Task, doing+" "+name, func() (T, error) {
		value, err := f()
		if err != nil {
			return value, &FileError{Subject: t.Subject(), Op: op, Name: name, Err: bare(err)}
		}
		return value, nil
	})
}

// read gives the content without the white space around it.
func (t *task) read(name string) (string, error) {
	data, err := call(t, "read", "reading", name, func() ([]byte, error) { return t.files.ReadFile(name) })
	return strings.TrimSpace(string(data)), err
}

// optional reads a file that not every driver has; it is empty when it is not
// there.
func (t *task) optional(name string) (string, error) {
	text, err := t.read(name)
	if absent(err) {
		return "", nil
	}
	return text, err
}

func (t *task) write(name, text string) error {
	_, err := call(t, "write "+text+" to", "writing "+text+" to", name, func() (struct{}, error) {
		return struct{}{}, t.files.WriteFile(name, []byte(text))
	})
	return err
}

func (t *task) list(name string) ([]string, error) {
	return call(t, "list", "listing", name, func() ([]string, error) { return t.files.ReadDir(name) })
}

func (t *task) stat(name string) (Info, error) {
	return call(t, "look at", "looking at", name, func() (Info, error) { return t.files.Stat(name) })
}

func (t *task) realPath(name string) (string, error) {
	return call(t, "follow", "following", name, func() (string, error) { return t.files.EvalSymlinks(name) })
}

// gpuHandle is one GPU during one task.
type gpuHandle struct {
	*task
	driver     *Driver
	pciAddress string
}

const devicesDir = "/sys/bus/pci/devices"

// file is a file of the GPU in sysfs.
func (c *gpuHandle) file(name string) string { return path.Join(devicesDir, c.pciAddress, name) }

// onGPU runs f for one GPU, alone, if the GPU is there.
func onGPU[T any](ctx context.Context, d *Driver, pciAddress string, f func(*gpuHandle) (T, error)) (T, error) {
	var none T
	// The address becomes part of paths.
	if address, err := gpu.NormalizePCIAddress(pciAddress); err != nil || address != pciAddress {
		return none, errors.Join(errors.New("GPU "+strconv.Quote(pciAddress)+": no PCI address in sysfs' spelling"), err)
	}
	return through(ctx, d.gateOf(pciAddress), d.cfg.Files, func(t *task) (T, error) {
		c := &gpuHandle{task: t, driver: d, pciAddress: pciAddress}
		if _, err := c.stat(c.file("")); absent(err) {
			return none, c.gone(err)
		} else if err != nil {
			return none, err
		}
		return f(c)
	})
}
