package usage

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/klog/v2"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Containers has the names of the containers that use a claim.
type Containers map[Use][]string

// Use is that a pod uses a claim.
type Use struct{ Namespace, Pod, Claim string }

// askPatience is how long the kubelet may take to answer.
const askPatience = 5 * time.Second

// maxAnswer is the size of the kubelet's answer: a node can have hundreds of pods.
const maxAnswer = 16 << 20

// FromKubelet asks the kubelet for the containers that use claims, by its PodResources API
// (kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins, "Monitoring
// device plugin resources"). Pods are told apart by their names, as in the API.
func FromKubelet(socket string) func(context.Context) (Containers, error) {
	return func(ctx context.Context) (Containers, error) {
		ctx, cancel := context.WithTimeout(ctx, askPatience)
		defer cancel()
		conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
		if err != nil {
			return nil, fmt.Errorf("ask the kubelet for the containers of claims: %w", err)
		}
		defer conn.Close()
		answer, err := podresources.NewPodResourcesListerClient(conn).List(ctx, &podresources.ListPodResourcesRequest{})
		if err != nil {
			return nil, fmt.Errorf("ask the kubelet for the containers of claims at %s: %w", socket, err)
		}
		return containersIn(answer), nil
	}
}

func containersIn(answer *podresources.ListPodResourcesResponse) Containers {
	found := Containers{}
	for _, pod := range answer.GetPodResources() {
		for _, container := range pod.GetContainers() {
			for _, claim := range container.GetDynamicResources() {
				use := Use{claim.GetClaimNamespace(), pod.GetName(), claim.GetClaimName()}
				if !slices.Contains(found[use], container.GetName()) {
					found[use] = append(found[use], container.GetName())
				}
			}
		}
	}
	return found
}

// mustAsk tells whether a pod holds a claim whose containers are not known.
func (s *Sampler) mustAsk() bool {
	if s.Containers == nil {
		return false
	}
	records := s.Records()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asking {
		return false
	}
	for i := range records {
		r := &records[i]
		for _, p := range r.Pods {
			if _, known := s.containers[Use{r.Claim.Namespace, p.Name, r.Claim.Name}]; !known && r.HandedOut() {
				s.asking = true
				return true
			}
		}
	}
	return false
}

// ask asks the kubelet. An answer replaces all earlier ones.
func (s *Sampler) ask(ctx context.Context) {
	found, err := s.Containers(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asking = false
	if err != nil {
		klog.FromContext(ctx).V(2).Info("The metrics do not name containers", "reason", err.Error())
		return
	}
	s.containers = found
}

// containerOf returns the container that uses a claim; empty if it is not known, or if several
// containers use the claim. The caller holds mu.
func (s *Sampler) containerOf(namespace, pod, claim string) string {
	if names := s.containers[Use{namespace, pod, claim}]; len(names) == 1 {
		return names[0]
	}
	return ""
}
