// Package actors is the runtime: it gives the machines of a job a life on a protoactor system, and
// carries their messages within a process by reference and between processes over NATS.
//
// One process is one [Node]. A run in one process:
//
//	node, err := actors.NewNode(actors.Options{Job: job.Name, Placement: plan.Actors, Observer: observer})
//	for each actor of the plan:
//		err = node.Spawn(actors.Actor{Machine: m, Executor: e, Device: d, Stream: s, Account: a})
//	c, err := node.Coordinate(actors.Coordination{Deadline: time.Minute}) // finds a run that stands still
//	err = c.Gather(ctx)                              // at once, when there is one node
//	err = node.Send(plan.Trainer, machine.Begin{})   // sets the trainer going
//	...                                              // Observer.Stop is called when it ends the run
//	err = c.Shutdown(ctx, "")
//	err = node.Close(ctx)                            // then close streams and devices
//
// A run over N processes: the coordinator is node 0, where the trainer is. It starts a [Server] first,
// and says what the others get to hear:
//
//	server, err := actors.StartServer(ctx, actors.ServerOptions{Job: name, Token: token, Listen: "127.0.0.1:0"})
//	node, err := actors.NewNode(actors.Options{..., Server: server})
//	... Spawn ...
//	c, err := node.Coordinate(actors.Coordination{Nodes: 4, Welcome: actors.Welcome{Job: yaml, ...}, Progress: print})
//	err = c.Gather(ctx)                              // "2/3 nodes joined; waiting for node 2 since 12 s"
//
// and every other node joins it by the address of its server:
//
//	server, err := actors.StartServer(ctx, actors.ServerOptions{Job: name, Token: token, Join: address})
//	member, err := actors.Join(ctx, server, actors.Hello{Node: 2, Name: "b", Version: version})
//	... member.Welcome() says what to build: job, options, placement, fingerprint of the plan ...
//	node, err := actors.NewNode(actors.Options{Index: member.Index(), ..., Server: server})
//	... Spawn ...
//	err = member.Ready(ctx, node, fingerprint)       // returns when the run begins
//	err = member.Wait(ctx)                           // nil after an orderly end
//	err = errors.Join(err, node.Close(ctx))
//	member.Leave(err)
//	server.Close()
//
// Recovery. The coordinator keeps a table that says which life (incarnation) of each actor counts, and on which node; it
// is in every beat, and the nodes follow it:
//
//	c, err := node.Coordinate(actors.Coordination{..., Lost: lost, Joined: joined})
//	err = c.Move(ctx, plan.StageID(0, 0), 1, 3)     // on node 3, Options.Spawn makes what incarnation 1 needs
//	err = node.Send(plan.Trainer, machine.Restarted{Actor: plan.StageID(0, 0), Incarnation: 1})
//	// The trainer announces the new life; all actors of all nodes are told by PeerIs, and send it again what it needs.
//
// A node that was given up and is still there reads its session in the beat: Member.Wait returns [ErrFenced], and the
// process may Join again, without actors. Within a node, Retire and then Spawn do the same without a table.
//
// Attempts. A run that goes back to a checkpoint begins again on the same server: Coordinator.Again instead of Shutdown, and
// then a new node 0, with the next Options.Attempt, and a new coordinator. The nodes hear [ErrAgain], close what they have, Leave,
// and Join again. While a run gathers, the number of a node that dies or leaves is free; one that leaves as [Unfit] ends it.
//
// What holds:
//   - A machine is called by one goroutine at a time, and its effects are performed in order. Nothing
//     in that blocks: operations run on the actor's stream, and frames are published by another goroutine.
//   - A panic in a machine or an operation ends that actor, is told to the trainer with actor, operation
//     and cause, and leaves the process alone.
//   - Messages from one actor to another arrive in order. Between nodes they arrive exactly once as long
//     as both nodes live, whatever NATS loses on the way; what is on its way over one link is bounded by
//     its window.
//   - What an old life of an actor sends, or what is for one, is refused: by the directory of the receiving node, by the
//     epoch of the link, which holds the incarnations of both its ends, and by the machine. A life listens on a subject of its
//     own, which names the attempt as well: of an older attempt nobody hears anything.
//   - A payload is handed over by reference within a process. What comes from another node is copied once,
//     to memory of the receiving actor's device, on its account.
//   - A node is lost when its process is known to have ended, when it says that it leaves, or when it is silent and its server
//     does not answer on a connection of its own either: a route that is cut for a second costs no node.
//   - A control message is taken if it is whole, of the job, and newer than all of its session on its subject.
//   - What nodes must know of each other is in heartbeats, and is said again in each: no single message
//     of them matters. They have connections of their own, which no tensor delays.
package actors
