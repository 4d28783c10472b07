package amd

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
)

// rasDir has the counts of memory and engine errors, by a file for each block of
// the chip ("umc_err_count"). GPUs without this reliability feature have none.
const rasDir = "ras"

const rasSuffix = "_err_count"

// CheckHealth asks whether a GPU is there, answers, can compute, and has counted
// no errors that could not be corrected.
func (d *Driver) CheckHealth(ctx context.Context, pciAddress string) error {
	_, err := forGPU(ctx, d, pciAddress, func(c *gpuHandle) (struct{}, error) { return struct{}{}, c.examine() })
	return err
}

func (c *gpuHandle) examine() error {
	if err := c.CheckBound(); err != nil {
		return err
	}
	// amdgpu answers this with EPERM while the GPU is in reset.
	l, err := c.Look()
	if err != nil {
		return err
	}
	if len(l.Nodes()) == 0 {
		return c.WithoutKFD()
	}
	return c.examineRAS()
}

// examineRAS looks for errors that were not corrected. The counts go back to zero
// when the driver is reloaded. That a single one takes a GPU out of service is
// also the default of AMD's device-metrics-exporter ("HealthThresholds").
// Format: docs.kernel.org/gpu/amdgpu/ras.html, "RAS Error Count sysfs Interface".
func (c *gpuHandle) examineRAS() error {
	blocks, uncorrected, err := c.uncorrected()
	if err != nil {
		return err
	}
	if uncorrected == 0 {
		return nil
	}
	return &sysfs.HealthError{
		PCIAddress: c.PCIAddress,
		Problem:    fmt.Sprintf("has counted %d errors that could not be corrected (%s)", uncorrected, strings.Join(blocks, ", ")),
		Kind:       gpu.CauseErrors,
		Cure:       "drain it and reload amdgpu or reboot the node; if they come back, have the GPU replaced",
	}
}

// uncorrected sums up the errors that could not be corrected, and names the
// blocks of the chip that had any.
func (c *gpuHandle) uncorrected() (blocks []string, sum uint64, err error) {
	_, err = c.eachBlock(func(block, text string) {
		if n := parseErrors(text, "ue"); n > 0 {
			blocks = append(blocks, fmt.Sprintf("%s %d", block, n))
			sum += n
		}
	})
	return blocks, sum, err
}

// errorCounts sums up the errors of all blocks. They are not known for chips that count none.
func (c *gpuHandle) errorCounts() (corrected, uncorrected uint64, known bool, err error) {
	known, err = c.eachBlock(func(_, text string) {
		corrected += parseErrors(text, "ce")
		uncorrected += parseErrors(text, "ue")
	})
	return corrected, uncorrected, known, err
}

// eachBlock reads the counts of the blocks of the chip. It reports whether there are any.
func (c *gpuHandle) eachBlock(f func(block, text string)) (any bool, err error) {
	names, err := c.List(c.File(rasDir))
	if sysfs.Absent(err) {
		return false, nil
	}
	if err != nil {
		return false, c.Explain(err)
	}
	for _, name := range names {
		block, ok := strings.CutSuffix(name, rasSuffix)
		if !ok {
			continue
		}
		text, err := c.Read(c.File(path.Join(rasDir, name)))
		if sysfs.Absent(err) {
			continue
		}
		if err != nil {
			return any, c.Explain(err)
		}
		any = true
		f(block, text)
	}
	return any, nil
}

// parseErrors reads "ue: 0\nce: 1\n": uncorrectable and corrected errors, and
// deferred ones ("de") that become one of the others. While the GPU cannot be
// asked the file has a sentence in place of numbers.
func parseErrors(text, kind string) uint64 {
	for line := range strings.Lines(text) {
		found, count, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(found) != kind {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(count), 10, 63)
		if err == nil {
			return n
		}
	}
	return 0
}

// Recovered reports whether what a fatal event reported is over. Everything that is
// told of these GPUs stays to be seen for as long as it is so: a reset, a missing
// GPU or KFD node, and the counts of errors, which a new load of the driver takes
// back. So a GPU that is healthy now has recovered. The error says why it is not.
func (d *Driver) Recovered(ctx context.Context, e gpu.HealthEvent) (bool, error) {
	if !e.Fatal {
		return true, nil
	}
	err := d.CheckHealth(ctx, e.PCIAddress)
	return err == nil, err
}
