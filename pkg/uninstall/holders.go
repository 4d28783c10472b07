package uninstall

import (
	"context"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
)

// holder is a claim that holds GPUs and is in use by pods.
type holder struct {
	namespace, claim string
	devices          []string
	users            []user
}

// user is a pod, or another object that a claim is reserved for.
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
			h.users = append(h.users, user{resource: u.Resource, name: u.Name})
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
			kind := strings.TrimSuffix(u.resource, "s")
			fmt.Fprintf(&b, "  %s %s/%s (claim %s) holds\n", kind, h.namespace, u.name, h.claim)
		}
		for _, d := range h.devices {
			fmt.Fprintf(&b, "      %s\n", d)
		}
	}
	return b.String()
}

// commands returns the commands that delete the holders, one for each namespace.
func commands(holders []holder) string {
	var namespaces []string
	pods := map[string][]string{}
	for _, h := range holders {
		for _, u := range h.users {
			if u.resource != "pods" || slices.Contains(pods[h.namespace], u.name) {
				continue
			}
			if pods[h.namespace] == nil {
				namespaces = append(namespaces, h.namespace)
			}
			pods[h.namespace] = append(pods[h.namespace], u.name)
		}
	}
	var b strings.Builder
	for _, namespace := range namespaces {
		names := pods[namespace]
		if len(names) > most {
			names = append(names[:most:most], "…")
		}
		fmt.Fprintf(&b, "      kubectl -n %s delete pod %s\n", namespace, strings.Join(names, " "))
	}
	return b.String()
}
