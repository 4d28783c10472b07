package uninstall

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
)

// orderGiver writes the order.
type orderGiver struct {
	*Config
	beat int
}

// give gives the order, or renews it.
func (g *orderGiver) give(ctx context.Context) error {
	g.beat++
	return g.write(ctx, names.UninstallRequest{Active: true, Force: g.Force, Beat: g.beat})
}

// takeBack sends the plugins back to work. The ConfigMap stays: if it were
// deleted, that could not be told from the end of the installation.
func (g *orderGiver) takeBack(ctx context.Context) error {
	g.beat++
	if err := g.write(ctx, names.UninstallRequest{Beat: g.beat}); err != nil {
		return fmt.Errorf("the plugins go back to work in %s only: %w", names.UninstallRequestExpiry, err)
	}
	return nil
}

func (g *orderGiver) write(ctx context.Context, order names.UninstallRequest) error {
	maps := g.Client.CoreV1().ConfigMaps(g.Namespace)
	owners, err := g.owners(ctx)
	if err != nil {
		return err
	}
	wanted := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: g.ConfigMap, Namespace: g.Namespace, OwnerReferences: owners,
			Labels: map[string]string{"app.kubernetes.io/instance": g.Release, "app.kubernetes.io/part-of": "tranche"},
		},
		Data: order.Data(),
	}
	if _, err = maps.Update(ctx, wanted, metav1.UpdateOptions{}); apierrors.IsNotFound(err) {
		_, err = maps.Create(ctx, wanted, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write ConfigMap %s/%s, by which the plugins are told: %w", g.Namespace, g.ConfigMap, err)
	}
	return nil
}

// owners makes the order go with the plugins' DaemonSet, so that nobody has to
// remove it.
func (g *orderGiver) owners(ctx context.Context) ([]metav1.OwnerReference, error) {
	set, err := g.Client.AppsV1().DaemonSets(g.Namespace).Get(ctx, g.DaemonSet, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil // somebody has deleted it; then nobody reads the order either
	}
	if err != nil {
		return nil, fmt.Errorf("read DaemonSet %s/%s: %w", g.Namespace, g.DaemonSet, err)
	}
	return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: set.Name, UID: set.UID}}, nil
}
