// A client of Contrada for browsers and Node, over the WebSocket of a broker's HTTP port.
export { connect } from "./client.js";
export type { Client, ClientLimits, ConnectOptions, DurableOptions, State, SubscribeOptions } from "./client.js";
export {
  ClosedError, ConnectionError, ContradaError, InvalidValueError, LimitError, RefusedError,
} from "./errors.js";
export type { WebSocketConstructor } from "./link.js";
export type { WhenFull } from "./messages.js";
export type { Envelope, Notification, Publication, PublishOptions } from "./notifications.js";
export type {
  DurableRecord, DurableSubscription, HandleOptions, Loss, QueueOptions, Subscription,
} from "./subscription.js";
export { Time } from "./values.js";
export type { Attributes, Value, Values } from "./values.js";
