package share

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/pkg/claim"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/mps"
)

// Serves implements claim.Sharer. The name of a daemon is the UID of its claim, or, with the
// strategy MPS, the name of its GPU.
func (s *Sharer) Serves(ref ledger.ClaimRef, d ledger.Device) string {
	switch {
	case !ofWholeGPU(d.Placement) || !d.Placement.Share.Limits:
		return ""
	case d.Placement.Share.Strategy == gpu.MPS:
		return d.Placement.GPUName()
	}
	return string(ref.UID)
}

// check refuses shares for which no daemon can run.
func (s *Sharer) check(h claim.Holder) error {
	p := h.Device.Placement
	works := s.cfg.Daemons != nil && p.Share.Limits
	switch {
	case !works && ofWholeGPU(p) && p.Share.Strategy == gpu.MPS:
		return fmt.Errorf("GPU %s is shared by MPS, which does not work on this node: %w; fix that, or choose the strategy %s for the GPU",
			p.GPUName(), s.noMPS(), gpu.TimeSlicing)
	case !works && s.Serves(h.Claim, h.Device) != "":
		return fmt.Errorf("GPU %s has shares with memory limits, which MPS enforces, and MPS does not work on this node: %w", p.GPUName(), s.noMPS())
	}
	return s.checkClaim(h)
}

func (s *Sharer) noMPS() error {
	if s.cfg.NoMPS != nil {
		if err := s.cfg.NoMPS(); err != nil {
			return err
		}
	}
	return errors.New("no probe of an MPS daemon has succeeded since the plugin started")
}

// checkClaim refuses a claim whose shares need several daemons: a process can use only one, and
// does not see the GPUs of others.
func (s *Sharer) checkClaim(h claim.Holder) error {
	var ids, gpus []string
	for _, d := range h.Devices {
		if id := s.Serves(h.Claim, d); id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
			gpus = append(gpus, d.Placement.GPUName())
		}
	}
	if len(ids) < 2 {
		return nil
	}
	return &claim.RefusedError{Err: fmt.Errorf("claim %s has shares of GPUs %s, each with an MPS daemon of its own, and a process can use one daemon only: ask for shares of one GPU, make a claim for each, or choose the strategy %s for the GPUs",
		h.Claim, strings.Join(gpus, " and "), gpu.TimeSlicing)}
}

// specOf returns the configuration of a holder's daemon. The daemon of a GPU is the same for all
// claims, whose limits are in the environment of their containers.
func specOf(h claim.Holder, id string) (mps.Spec, error) {
	spec := mps.Spec{ID: id}
	if id != string(h.Claim.UID) {
		spec.Devices = []mps.Device{{UUID: h.Device.UUID}}
		return spec, nil
	}
	for i, limit := range limitsOf(h) {
		if i > 0 && limit.compute != spec.ThreadPercentage {
			return mps.Spec{}, &claim.RefusedError{Err: fmt.Errorf("claim %s asks for %d %% of the compute units of one GPU and for %d %% of another's, and its MPS daemon has one limit for all: ask for the same of each, or make a claim for each",
				h.Claim, spec.ThreadPercentage, limit.compute)}
		}
		spec.ThreadPercentage = limit.compute
		spec.Devices = append(spec.Devices, mps.Device{UUID: limit.uuid, MemoryLimit: limit.memory})
	}
	return spec, nil
}

// limit has the limits of a claim on one GPU.
type limit struct {
	gpu, uuid string
	// memory is in bytes, compute in percent, zero for none.
	memory, compute int64
}

// limitsOf returns the limits of a claim by GPU, in the order in which its processes see the
// GPUs. Limits of several shares of one GPU are added up: a container can have all of them.
func limitsOf(h claim.Holder) []limit {
	var limits []limit
	for _, d := range h.Devices {
		if !ofWholeGPU(d.Placement) || !d.Placement.Share.Limits {
			continue
		}
		i := slices.IndexFunc(limits, func(l limit) bool { return l.gpu == d.Placement.GPU })
		if i < 0 {
			limits = append(limits, limit{d.Placement.GPU, d.UUID, d.MemoryMost(), d.Amount.Compute})
			continue
		}
		limits[i].memory += d.MemoryMost()
		if limits[i].compute == 0 || d.Amount.Compute == 0 {
			limits[i].compute = 0
		} else {
			limits[i].compute += d.Amount.Compute
		}
	}
	return limits
}
