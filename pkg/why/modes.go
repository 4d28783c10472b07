package why

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/why/demand"
)

// InMode are GPUs that have the requested device, but not in the mode in which claims keep them: an
// AMD GPU is in one mode at a time.
type InMode struct {
	Mode   string `json:"mode"`
	GPUs   int    `json:"gpus"`
	Claims int    `json:"claims"`
}

// Nearest is the GPU that the fewest claims keep in another mode.
type Nearest struct {
	GPU     string   `json:"gpu"`
	Holders []string `json:"holders"`
}

// oneMode is why a GPU with room may have none for a partition.
const oneMode = "A GPU changes its mode only when no claim holds a part of it."

// whole is the mode of a GPU without partitions.
const whole = "SPX"

// modesClash tells whether requests need different modes.
func (c *world) modesClash(ctx context.Context, node *corev1.Node, claims []*resourceapi.ResourceClaim) bool {
	var wanted [][]string
	for _, claim := range claims {
		for _, r := range claim.Spec.Devices.Requests {
			var modes []string
			for _, ch := range demand.Choices(r) {
				modes = union(modes, c.wantedModes(ctx, node, ch)...)
			}
			for _, others := range wanted {
				shares := slices.ContainsFunc(modes, func(m string) bool { return slices.Contains(others, m) })
				if len(modes) > 0 && len(others) > 0 && !shares {
					return true
				}
			}
			wanted = append(wanted, modes)
		}
	}
	return false
}

func (c *world) wantedModes(ctx context.Context, node *corev1.Node, ch demand.Choice) (modes []string) {
	for _, p := range c.Pools {
		for _, d := range p.Devices {
			if ok, err := c.wanted(ctx, d, ch); err == nil && ok && d.On(node) && d.Mode() != "" {
				modes = union(modes, d.Mode())
			}
		}
	}
	return modes
}

// addModes finds the GPUs that claims keep in a mode without the requested device. of has the
// required modes of each GPU.
func (s *supply) addModes(c *world, of map[*cluster.Pool][]string) {
	fewest := 0
	for _, p := range c.Pools {
		modes, ok := of[p]
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
		if s.nearest == nil || len(holders) < fewest {
			s.nearest, fewest = &Nearest{GPU: p.GPU, Holders: namesOf(holders)}, len(holders)
		}
	}
}

// inOtherModes counts the GPUs that claims keep in another mode.
func (s supply) inOtherModes() int {
	n := 0
	for _, m := range s.inMode {
		n += m.GPUs
	}
	return n
}

// modeSentence says which GPUs are in the wrong mode: "All 8 GPUs are in CPX, for
// 12 claims. …".
func (s supply) modeSentence() string {
	if len(s.inMode) == 0 {
		return ""
	}
	var parts []string
	for _, m := range s.inMode {
		gpus := fmt.Sprintf("%d of %d GPUs", m.GPUs, s.gpus)
		switch {
		case s.gpus == 1:
			gpus = "the GPU"
		case m.GPUs == s.gpus:
			gpus = fmt.Sprintf("all %d GPUs", m.GPUs)
		}
		be := "are"
		if m.GPUs == 1 {
			be = "is"
		}
		state := "in " + m.Mode
		if m.Mode == whole {
			state = "held whole"
		}
		parts = append(parts, fmt.Sprintf("%s %s %s, for %s", gpus, be, state, claims(m.Claims)))
	}
	return " " + text.Capital(strings.Join(parts, "; ")) + ". " + oneMode
}

func claims(n int) string {
	if n == 1 {
		return "1 claim"
	}
	return fmt.Sprintf("%d claims", n)
}

// remedyFull adds what a person can do if all devices are held.
func (e *Explanation) remedyFull(full []Node) {
	var near *Nearest
	node, only := "", true
	for _, n := range full {
		for _, r := range n.Requests {
			if r.Verdict == Fits {
				continue
			}
			if near == nil && r.Nearest != nil {
				near, node = r.Nearest, n.Name
			}
			only = only && r.Nearest != nil && !r.sameMode
		}
	}
	if near == nil || !only {
		e.remedy("wait until one of the holders ends, or delete one of them: this pod then gets the device automatically.", "")
	}
	if near == nil {
		return
	}
	text := "wait until one of the GPUs is free, or free one: "
	if !only {
		text = "or free one of the GPUs in another mode: "
	}
	e.remedy(fmt.Sprintf("%s%s on %s has the fewest holders (%s). The GPU is then switched for this pod automatically.",
		text, near.GPU, node, strings.Join(near.Holders, "; ")), "")
}
