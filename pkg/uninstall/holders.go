package uninstall

import (
	"context"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// holder is a claim that holds GPUs and is in use by pods.
type holder struct {
	namespace, claim string
	devices          []string
	users            []user
}

// user is a pod, or another object that a claim is reserved for. resource is as kubectl takes it.
type user struct{ resource, name string }

// holders lists the claims that hold GPUs and are in use.
func (c *Config) holders(ctx context.Context) (holders []holder, err error) {
	err = pages(ctx, func(ctx context.Context, next string) (string, error) {
		list, err := c.Client.ResourceV1().ResourceClaims(metav1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: page, Continue: next})
		if err != nil {
			return "", err
		}
		holders = append(holders, findHolders(list.Items)...)
		return list.Continue, nil
	})
	if err != nil {
		return nil, fmt.Errorf("list ResourceClaims that hold GPUs: %w", err)
	}
	return holders, nil
}

// findHolders returns the claims that have our devices and are in use.
func findHolders(claims []resourceapi.ResourceClaim) []holder {
	var holders []holder
	for i := range claims {
		c := &claims[i]
		if c.Status.Allocation == nil || len(c.Status.ReservedFor) == 0 {
			continue
		}
		h := holder{namespace: c.Namespace, claim: c.Name}
		for _, r := range c.Status.Allocation.Devices.Results {
			if r.Driver == names.DriverName {
				h.devices = append(h.devices, fmt.Sprintf("%s on node %s", r.Device, r.Pool))
			}
		}
		for _, u := range c.Status.ReservedFor {
			h.users = append(h.users, user{schema.GroupResource{Group: u.APIGroup, Resource: u.Resource}.String(), u.Name})
		}
		if len(h.devices) > 0 {
			holders = append(holders, h)
		}
	}
	slices.SortFunc(holders, func(a, b holder) int {
		return strings.Compare(a.namespace+"/"+a.claim, b.namespace+"/"+b.claim)
	})
	return holders
}

// most is the maximum number of holders to name.
const most = 50

// describe describes holders, one paragraph for each claim.
func describe(holders []holder) string {
	var b strings.Builder
	for i, h := range holders {
		if i == most {
			fmt.Fprintf(&b, "  … and %d more claims\n", len(holders)-most)
			break
		}
		for _, u := range h.users {
			fmt.Fprintf(&b, "  %s %s/%s (claim %s) holds\n", singular(u.resource), h.namespace, u.name, h.claim)
		}
		for _, d := range h.devices {
			fmt.Fprintf(&b, "      %s\n", d)
		}
	}
	return b.String()
}

// singular returns the name of one object: "pod", "podgroup.scheduling.k8s.io".
func singular(resource string) string {
	name, group, _ := strings.Cut(resource, ".")
	return strings.TrimSuffix(strings.TrimSuffix(name, "s")+"."+group, ".")
}

// commands returns the commands that delete the holders, one for each namespace and resource.
func commands(holders []holder) string {
	type of struct{ namespace, resource string }
	var order []of
	found := map[of][]string{}
	for _, h := range holders {
		for _, u := range h.users {
			key := of{h.namespace, u.resource}
			if found[key] == nil {
				order = append(order, key)
			}
			found[key] = lists.Union(found[key], u.name)
		}
	}
	var b strings.Builder
	for _, key := range order {
		names := found[key]
		if len(names) > most {
			names = append(names[:most:most], "…")
		}
		fmt.Fprintf(&b, "      kubectl -n %s delete %s %s\n", key.namespace, singular(key.resource), strings.Join(names, " "))
	}
	return b.String()
}
