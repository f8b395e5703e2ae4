-- The shop's database. It is the only place that the shop writes to; all else follows its log.
-- Running it again changes nothing.

CREATE TABLE IF NOT EXISTS products (
    product_id  bigint PRIMARY KEY,
    name        text NOT NULL,
    description text NOT NULL,
    category    text NOT NULL,
    price       numeric(10, 2) NOT NULL CHECK (price > 0),
    stock       integer NOT NULL CHECK (stock >= 0),
    updated_at  timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE IF NOT EXISTS carts (
    cart_id    bigint PRIMARY KEY,
    customer   text NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE IF NOT EXISTS cart_lines (
    cart_id    bigint NOT NULL REFERENCES carts ON DELETE CASCADE,
    product_id bigint NOT NULL REFERENCES products,
    quantity   integer NOT NULL CHECK (quantity > 0),
    price      numeric(10, 2) NOT NULL CHECK (price > 0),
    PRIMARY KEY (cart_id, product_id)
);

CREATE TABLE IF NOT EXISTS orders (
    order_id  bigint PRIMARY KEY,
    customer  text NOT NULL,
    status    text NOT NULL CHECK (status IN ('placed', 'paid', 'shipped', 'cancelled')),
    placed_at timestamptz NOT NULL DEFAULT now(),
    total     numeric(12, 2) NOT NULL CHECK (total >= 0)
);

CREATE TABLE IF NOT EXISTS order_lines (
    order_id   bigint NOT NULL REFERENCES orders ON DELETE CASCADE,
    line       integer NOT NULL CHECK (line > 0),
    product_id bigint NOT NULL REFERENCES products,
    quantity   integer NOT NULL CHECK (quantity > 0),
    price      numeric(10, 2) NOT NULL CHECK (price > 0),
    PRIMARY KEY (order_id, line)
);

CREATE INDEX IF NOT EXISTS cart_lines_product ON cart_lines (product_id);
CREATE INDEX IF NOT EXISTS order_lines_product ON order_lines (product_id);

-- Where tables are put as they were at a moment, to get rows back that were deleted by mistake. It is not captured.
CREATE SCHEMA IF NOT EXISTS recovery;
