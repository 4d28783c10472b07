package gpu

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Each GPU is a letter; peers are letters too.
func TestSetLinkGroups(t *testing.T) {
	for name, test := range map[string]struct {
		gpus  string
		links map[string]Links
		want  map[string]string
	}{
		"no links":                     {"ab", nil, map[string]string{}},
		"a fabric":                     {"abc", map[string]Links{"a": {Fabric: "f"}, "b": {Fabric: "f"}, "c": {Fabric: "f"}}, map[string]string{"a": "f", "b": "f", "c": "f"}},
		"two fabrics":                  {"abcd", map[string]Links{"a": {Fabric: "f"}, "b": {Fabric: "g"}, "c": {Fabric: "f"}, "d": {Fabric: "g"}}, map[string]string{"a": "f", "b": "g", "c": "f", "d": "g"}},
		"alone in a fabric":            {"ab", map[string]Links{"a": {Fabric: "f"}}, map[string]string{}},
		"pairs":                        {"abcd", peers("a:b b:a c:d d:c"), map[string]string{"a": "gpu-a", "b": "gpu-a", "c": "gpu-c", "d": "gpu-c"}},
		"a pair that is not neighbors": {"abc", peers("a:c c:a"), map[string]string{"a": "gpu-a", "c": "gpu-a"}},
		"one does not answer":          {"a", peers("a:b"), map[string]string{}},
		"only one end is up":           {"ab", peers("a:b"), map[string]string{}},
		"four, each to each":           {"abcd", peers("a:bcd b:acd c:abd d:abc"), map[string]string{"a": "gpu-a", "b": "gpu-a", "c": "gpu-a", "d": "gpu-a"}},
		"in a row":                     {"abc", peers("a:b b:ac c:b"), map[string]string{}},
		"a ring":                       {"abcd", peers("a:bd b:ac c:bd d:ac"), map[string]string{}},
		"a cube with diagonals":        {"abcdefgh", peers("a:bcde b:acdf c:abdg d:abch e:afgh f:begh g:cefh h:defg"), map[string]string{}},
		"two pairs with a GPU between": {"xabcd", peers("x:abcd a:xb b:xa c:xd d:xc"), map[string]string{"a": "gpu-a", "b": "gpu-a", "c": "gpu-c", "d": "gpu-c"}},
	} {
		t.Run(name, func(t *testing.T) {
			var gpus []GPU
			for _, address := range strings.Split(test.gpus, "") {
				gpus = append(gpus, GPU{PCIAddress: address, LinkGroup: "before"})
			}
			SetLinkGroups(gpus, test.links)
			got := map[string]string{}
			for _, g := range gpus {
				if g.LinkGroup != "" {
					got[g.PCIAddress] = g.LinkGroup
				}
			}
			assert.Equal(t, test.want, got)
		})
	}
}

// peers reads "a:bc b:a": a is linked to b and c, b to a.
func peers(text string) map[string]Links {
	links := map[string]Links{}
	for _, field := range strings.Fields(text) {
		own, others, _ := strings.Cut(field, ":")
		links[own] = Links{Peers: strings.Split(others, "")}
	}
	return links
}
