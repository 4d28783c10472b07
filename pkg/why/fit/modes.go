package fit

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/why/demand"
)

// modesClash reports whether requests need different modes of AMD's GPUs.
func (m *Model) modesClash(ctx context.Context, node *corev1.Node, d *demand.Demand) (clash bool) {
	var wanted [][]string
	d.EachRequest(func(_ *resourceapi.ResourceClaim, r resourceapi.DeviceRequest) {
		var modes []string
		for _, ch := range demand.Choices(r) {
			modes = lists.Union(modes, m.wantedModes(ctx, node, ch)...)
		}
		for _, others := range wanted {
			shared := slices.ContainsFunc(modes, func(m string) bool { return slices.Contains(others, m) })
			clash = clash || len(modes) > 0 && len(others) > 0 && !shared
		}
		wanted = append(wanted, modes)
	})
	return clash
}

func (m *Model) wantedModes(ctx context.Context, node *corev1.Node, ch demand.Choice) (modes []string) {
	for _, p := range m.Pools {
		for _, d := range p.Devices {
			if _, ok, err := m.passes(ctx, d, ch); err == nil && ok && d.On(node) && d.Mode() != "" {
				modes = lists.Union(modes, d.Mode())
			}
		}
	}
	return modes
}

// addModes counts the GPUs that claims keep in a mode without the requested device. required has the
// required modes of each GPU.
func (s *supply) addModes(m *Model, required map[*cluster.Pool][]string) {
	for _, p := range m.Pools {
		modes, ok := required[p]
		if !ok {
			continue
		}
		s.gpus++
		mode, holders := p.Users()
		if mode == "" || slices.Contains(modes, mode) {
			continue
		}
		i := slices.IndexFunc(s.inMode, func(m InMode) bool { return m.Mode == mode })
		if i < 0 {
			i = len(s.inMode)
			s.inMode = append(s.inMode, InMode{Mode: mode})
		}
		s.inMode[i].GPUs++
		s.inMode[i].Claims += len(holders)
	}
}

// modeText describes the GPUs in another mode: ". Of 8 GPUs, 8 in mode CPX (claims: 12). …". The mode of
// a GPU that is held whole is SPX.
func (s *supply) modeText() string {
	if len(s.inMode) == 0 {
		return ""
	}
	parts := lists.Map(s.inMode, func(m InMode) string { return fmt.Sprintf("%d in mode %s (claims: %d)", m.GPUs, m.Mode, m.Claims) })
	return fmt.Sprintf(". Of %d GPUs, %s. A GPU changes its mode only when no claim holds a part of it", s.gpus, strings.Join(parts, ", "))
}
